"""One step through a backend's forward: the cache written, the metadata built, attention computed and judged."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from attnmatrix_vllm import contracts
from cases import extents
from cases.batches import Named
from cases.extents import Built
from cases.forward import inputs as step_inputs
from cases.forward.inputs import Heads, Inputs
from cases.forward.judge import SENTINEL, Judged, judge, named_tokens
from cases.verdicts import Batch, Overflow
from cases.vllm_api import cpu_isa, forward

POISON = {"cpu_attn": 2.0**14}
"""What fills the places that nobody may read, where it is not NaN. cpu_attn's kernel multiplies the values behind a
row's last key, up to the end of a block of keys, by a weight of 0: a NaN there spoils the row, any number does not."""


@dataclass(frozen=True)
class Shown:
    """The overflows of a batch (of buffers while it was built, and of what kernels read), and what is wrong, in words.

    Query tokens whose output depends on what a kernel reads past an end are not called wrong.
    """

    overflows: tuple[Overflow, ...]
    wrong: str
    computed: bool


@dataclass
class Forward:
    """The chunked layer of a deployment with its KV cache; made once per cell, as by a server."""

    auditor: extents.Auditor
    cache: torch.Tensor = field(init=False)
    used: list[int] = field(init=False, default_factory=list)
    shown: dict[Batch, Shown] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        deployment = self.auditor.deployment
        self.cache = forward.kv_cache(deployment)
        self._poison(slice(None))
        if self.shape.fp8:
            scales = step_inputs.Q_SCALE, step_inputs.K_SCALE, step_inputs.V_SCALE
            forward.set_scales(forward.layer_of(deployment), *scales)

    @property
    def shape(self) -> Heads:
        load, spec = self.auditor.cell.load, self.auditor.deployment.spec
        dtype, fp8 = getattr(torch, load.dtype), self.auditor.cell.kv_dtype.startswith("fp8")
        return Heads(load.num_heads, load.num_kv_heads, load.head_size, dtype, fp8, spec.block_size)

    def show(self, named: Named) -> Shown:
        """What a batch showed; computed once. One that overran while it was built may be computed all the same."""
        if named.batch not in self.shown:
            self.shown[named.batch] = self._show(named)
        return self.shown[named.batch]

    def _show(self, named: Named) -> Shown:
        room, cell = int(self.cache.shape[0]) - 1, self.auditor.cell
        pages = sum(-(-s // self.shape.page) for s in named.batch.seq_lens)
        built = self.auditor.build(named.batch, shared_prefix=pages > room)
        if built.metadata is None:
            return Shown(built.overflows, "", computed=False)
        inputs, output, met = self.compute(built)
        cut = cell.backend == "cpu_attn" and cell.load.dtype == "bfloat16" and cpu_isa.cuts_bfloat16()
        judged = judge(output, inputs, built.batch, cell.pattern, cell.load.dtype, cell.backend, cut=cut)
        read = tuple(_overflow(error, judged, built, len(output)) for error in met)
        unexplained = judged.tokens & ~_explained(met, built, len(output))
        return Shown(built.overflows + read, judged.words if unexplained.any() else "", computed=True)

    def compute(self, built: Built) -> tuple[Inputs, np.ndarray[Any, Any], list[contracts.OutOfRange]]:
        """The step's inputs, its output [tokens, heads, size] in float64, and the reads past an end on the way."""
        deployment = self.auditor.deployment
        table = extents.read(built.step.block_table_tensor).astype(np.int64)
        inputs = step_inputs.of(built.batch, self.auditor.deployment.pattern, table, self.shape)
        self._write(inputs)
        query = inputs.queries.to(deployment.device)
        output = torch.full_like(query, SENTINEL)
        with contracts.recorded() as met:
            forward.forward(deployment, built.metadata, self.cache, query, output)
        return inputs, output.double().cpu().numpy(), met

    def _write(self, inputs: Inputs) -> None:
        """Keys and values into their slots, and poison into what the last step left."""
        if self.used:
            self._poison(self.used)
        self.used = np.unique(inputs.slots.numpy() // self.shape.page).tolist()
        device = self.cache.device
        given = (x.to(device) for x in (inputs.keys, inputs.values, inputs.slots))
        forward.write(self.auditor.deployment, self.cache, *given)

    def _poison(self, pages: slice | list[int]) -> None:
        """Poison in these pages; in bytes, all ones are a NaN of both FP8 formats."""
        finite = POISON.get(self.auditor.cell.backend)
        if finite is None and self.cache.dtype == torch.uint8:
            self.cache[pages] = 0xFF
        else:
            self.cache[pages] = torch.nan if finite is None else finite


def _overflow(error: contracts.OutOfRange, judged: Judged, built: Built, tokens: int) -> Overflow:
    """A read past an end, and what became of the output by the model of the kernel."""
    rows = _rows(error, built)
    if rows is None:
        detail = "the model of the kernel takes no number from it: "
    else:
        detail = f"a kernel reads what lies behind for {len(rows)} rows, the first {rows[0]}: "
    if judged.tokens.any():
        detail += f"by the model, query tokens {named_tokens(judged.tokens)} of {tokens} are unknown"
    else:
        detail += f"by the model, the outputs of all {tokens} query tokens were right"
    return Overflow(error.buffer, error.required, error.allocated, "short", built.batch, detail)


def _explained(met: list[contracts.OutOfRange], built: Built, tokens: int) -> np.ndarray[Any, Any]:
    """The query tokens [tokens] whose output depends on what a kernel reads past an end."""
    query_lens = built.need.rows.query_lens
    ends = np.cumsum(query_lens)
    found = np.zeros(tokens, dtype=bool)
    for error in met:
        for row in _rows(error, built) or ():
            found[ends[row] - query_lens[row] : ends[row]] = True
    return found


def _rows(error: contracts.OutOfRange, built: Built) -> list[int] | None:
    """The virtual batches that a too short buffer has no entry for; None if no output depends on it."""
    if error.buffer != "xqa_draft_mask":
        return None
    lens = built.need.rows.query_lens[: built.metadata.num_decodes]
    ends = np.cumsum(lens) if built.metadata.decode.q_cu_seq_lens is not None else np.arange(1, len(lens) + 1)
    return np.flatnonzero(ends > error.allocated).tolist()
