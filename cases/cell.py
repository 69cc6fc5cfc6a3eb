"""The cell under test, as the cases know it: what the runner sent, or what `pytest cases --cell ID` was given."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Load:
    """A deployment shape: counts in sequences, heads and tokens; `block_size` is tokens per KV-cache page."""

    name: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    dtype: str


@dataclass(frozen=True)
class Cell:
    """One combination of the matrix."""

    id: str
    vllm: str
    backend: str
    arch: str
    hybrid: bool
    spec_k: int
    chunk: int
    load: Load
    evidence: str

    @property
    def on_device(self) -> bool:
        """Whether the real device of this machine is under test; otherwise vLLM's Python runs on the CPU."""
        return self.evidence == "device"


def from_json(body: dict[str, Any]) -> Cell:
    """The cell in a `run` message or in a cells file; KeyError or TypeError name what is missing or unknown."""
    axes = body["axes"]
    return Cell(
        id=body["id"],
        vllm=axes["vllm"],
        backend=axes["backend"],
        arch=axes["arch"],
        hybrid=axes["hybrid"] == "on",
        spec_k=axes["spec_k"],
        chunk=axes["chunk"],
        load=Load(**body["load"]),
        evidence=body["evidence"],
    )
