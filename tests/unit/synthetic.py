"""A made-up run of 3,780 cells in the shape of the shipped matrix: real words, no vLLM."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from runner.model import Batch, CaseResult, Cause, CellResult, Evidence, How, Overflow, State, Verdict

AXES = {
    "vllm": ("0.32.0",),
    "backend": ("flashinfer", "flash_attn", "triton_attn", "flex_attention", "cpu_attn"),
    "arch": ("sm80", "sm89", "sm90", "sm100", "sm103", "sm120", "cpu"),
    "hybrid": ("on", "off"),
    "spec_k": (0, 1, 2, 3, 5, 7),
    "chunk": (64, 1024, 8192),
    "load": ("solo", "small", "server"),
}
ISSUE = "https://github.com/vllm-project/vllm/issues/49980"
INDPTR = "test_paged_kv_buffers_hold_the_worst_batches"
LENGTHS = "test_prefill_lengths_have_an_entry_for_each_row"
MASK = "test_draft_mask_has_a_row_for_each_window"
VIRTUAL = "test_each_query_token_reaches_exactly_its_chunk"
RAISED = "ValueError: provided out is the wrong size for the accumulation."


def cell(state: State = State.PASS, *cases: CaseResult, **fields) -> CellResult:
    """One result; axes and id can be given, the rest follows."""
    axes = {**{axis: values[0] for axis, values in AXES.items()}, **fields.pop("axes", {})}
    words = (
        f"hybrid_{v}" if a == "hybrid" else f"k{v}" if a == "spec_k" else f"c{v}" if a == "chunk" else v
        for a, v in axes.items()
    )
    id_ = "-".join(str(word) for word in words)
    made = CellResult(
        id=id_,
        axes=axes,
        state=state,
        verdict=Verdict(state.value),
        evidence=Evidence.CPU if axes["arch"] == "cpu" else Evidence.EMULATED,
        cases=cases or (CaseResult(name=VIRTUAL, state=state, message="" if state is State.PASS else "it was so"),),
        overflow=tuple(overflow for case in cases for overflow in case.overflow),
        reason=next((case.message for case in cases if case.state is state), ""),
        repro=f"runner repro {id_}",
        duration_s=0.05,
        ended_at="2026-11-29T15:04:00+00:00",
        environment={
            "vllm": "0.32.0",
            "flashinfer": "",
            "torch": "2.13.0+cpu",
            "image_digest": "",
            "base_digest": "",
            "gpu": "",
            "driver": "",
            "machine": "lab1",
            "recipe_digest": "",
            "hashes": "",
            "candidate": "",
            "cases_digest": "",
        },
        resolved={"backend": "FLASHINFER"},
    )
    return replace(made, **fields)


def overflow(
    how: How = How.RAISED, *, buffer: str = "paged_kv_indptr", required: int = 6, allocated: int = 2, tokens: int = 320
):
    return Overflow(
        buffer=buffer,
        required=required,
        allocated=allocated,
        how=how,
        batch=Batch(query_lens=(tokens,), seq_lens=(tokens,)),
    )


def overflowed(name: str = INDPTR, *found: Overflow, message: str = RAISED, cause: Cause | None = None) -> CaseResult:
    shown = found or (overflow(),)
    return CaseResult(name=name, state=State.OVERFLOW, message=message, duration_s=0.01, overflow=shown, cause=cause)


def cause(words: str = "no room for 5 rows", line: int = 812, **fields) -> Cause:
    """An assertion in FlashInfer's builder."""
    given = {"exception": "AssertionError", "file": "vllm/v1/attention/backends/flashinfer.py", "function": "build"}
    return Cause(**{**given, "words": words, "line": line, **fields})


def failed(name: str = VIRTUAL, state: State = State.FAIL, **fields) -> CaseResult:
    """A case that vLLM's assertion ended."""
    found = cause(**fields)
    return CaseResult(name=name, state=state, message=f"{found.exception}: {found.words}", cause=found)


def results(axes: dict | None = None) -> Iterator[CellResult]:
    axes = axes or AXES
    for values in product(*axes.values()):
        yield _judge(dict(zip(axes, values, strict=True)))


def _judge(axes: dict) -> CellResult:
    backend, arch, k, load = axes["backend"], axes["arch"], axes["spec_k"], axes["load"]
    if (backend == "cpu_attn") != (arch == "cpu"):
        because = (
            "cpu_attn is the CPU platform's backend"
            if backend == "cpu_attn"
            else "GPU backends are judged on GPU archs"
        )
        return cell(State.UNSUPPORTED, axes=axes, reason=because, cases=(), repro="")
    if backend == "flash_attn" and axes["hybrid"] == "off" and k == 7:
        reason = CaseResult(
            name=VIRTUAL, state=State.REFUSED, message="ValueError: num_speculative_tokens 7 is too many"
        )
        return cell(State.REFUSED, reason, axes=axes)
    if backend == "flashinfer" and load != "server":
        if arch in ("sm100", "sm103"):
            found = [
                overflowed(LENGTHS, overflow(How.RESIZED, buffer="cum_seq_lens_kv"), message="cum_seq_lens_kv is short")
            ]
        else:
            found = [overflowed(INDPTR, overflow(required=6 + k, tokens=320 + k))]
        if arch in ("sm90", "sm120") and k == 3 and load == "solo":
            mask = overflow(How.SHORT, buffer="draft_mask", required=2, allocated=1, tokens=4)
            found.append(overflowed(MASK, mask, message="1 row for 2 decodes"))
        return cell(State.OVERFLOW, *found, axes=axes)
    return cell(axes=axes)


def known(rows: Iterable[CellResult]) -> Iterator[CellResult]:
    """The same with its overflows known."""
    for row in rows:
        yield replace(row, verdict=Verdict.XFAIL, known=ISSUE) if row.state is State.OVERFLOW else row
