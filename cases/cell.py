"""The cell under test, as the cases know it: what the runner sent, or what `pytest cases --cell ID` was given."""

from dataclasses import dataclass, replace
from typing import Any

from cases.patterns import Chunked, Pattern


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
    kv_dtype: str = "auto"
    cudagraph: str = "auto"
    draft: str = "ngram"
    case: str = "metadata"

    @property
    def pattern(self) -> Pattern:
        """What a token sees in the layers under test."""
        return Chunked(self.chunk)

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
        load=_load(Load(**body["load"]), axes),
        evidence=body["evidence"],
        **{axis: axes[axis] for axis in ("kv_dtype", "cudagraph", "draft", "case") if axis in axes},
    )


def _load(load: Load, axes: dict[str, Any]) -> Load:
    """The load with what the cell's axes put in its place; an axis says `load` where they put nothing."""

    def put(axis: str, size: int) -> int:
        return int(value) if (value := axes.get(axis, "load")) != "load" else size

    group_size = put("group_size", load.num_heads // load.num_kv_heads)
    return replace(
        load,
        head_size=put("head_size", load.head_size),
        num_heads=load.num_kv_heads * group_size,
        block_size=put("page_size", load.block_size),
    )
