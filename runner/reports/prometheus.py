"""metrics.prom: counts for Prometheus' textfile collector, in the text format 0.0.4.

Counts and sums alone, by labels of few values: cells are no labels, or each run would make thousands of series.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from runner.model import CellResult
from runner.reports import behind
from runner.reports.text import finite, one_line

Labels = tuple[tuple[str, str], ...]


def render(results: Sequence[CellResult], *, exit_code: int) -> str:
    """Each metric with its help and type; sorted, so that the same results give the same bytes."""
    cells = Counter((*_place(result), ("verdict", result.verdict.value)) for result in results)
    overflows = Counter(
        (*_place(result), ("buffer", one_line(overflow.buffer, 120)), ("how", overflow.how.value))
        for result in results
        for overflow in result.overflow
    )
    seconds: dict[Labels, float] = defaultdict(float)
    for result in results:
        seconds[_place(result)] += finite(result.duration_s)
    unjudged = Counter[Labels]()
    for result in results:
        if hidden := behind.of(result):
            unjudged[_place(result)] += len(hidden.unjudged)
    ends = [when for result in results if (when := _seconds(result.ended_at)) is not None]
    lines = [
        *_metric("attnmatrix_cells", "Cells by what became of them, known issues applied.", cells),
        *_metric("attnmatrix_overflows", "Cells in which a buffer overran, by buffer and how it showed.", overflows),
        *_metric("attnmatrix_unjudged_cases", "Cases that known issues kept from judging.", unjudged),
        *_metric("attnmatrix_cell_seconds", "Seconds spent in the cells' own processes.", seconds),
        *_metric("attnmatrix_exit_code", "What the run exited with.", {(): exit_code}),
    ]
    if ends:
        lines += _metric("attnmatrix_last_cell_timestamp_seconds", "When the last cell ended.", {(): max(ends)})
    return "".join(f"{line}\n" for line in lines)


def _place(result: CellResult) -> Labels:
    names = ("vllm", "backend", "arch")
    return (
        *((name, one_line(str(result.axes.get(name, "")), 120)) for name in names),
        ("evidence", result.evidence.value),
    )


def _metric(name: str, explained: str, values: Mapping[Labels, float]) -> Iterator[str]:
    yield f"# HELP {name} {explained}"
    yield f"# TYPE {name} gauge"
    for labels, value in sorted(values.items()):
        inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        yield f"{name}{{{inner}}} {round(value, 6):.16g}" if inner else f"{name} {round(value, 6):.16g}"


def _escaped(text: str) -> str:
    """As the text format says; `one_line` has left no newline."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _seconds(when: str) -> float | None:
    try:
        return datetime.fromisoformat(when).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
