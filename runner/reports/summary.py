"""The sentences that every report shares: totals, evidence, reasons, exit code."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner.model import CellResult, Evidence, State, Verdict
from runner.outcome import EXIT_MEANING, VERDICT_ORDER, totals
from runner.reports.text import count, one_line

EVIDENCE_MEANING = {
    Evidence.DEVICE: "on that GPU",
    Evidence.EMULATED: "vLLM's own Python on a CPU that presents the arch; no GPU kernel ran",
    Evidence.INTERPRETED: "real Triton kernels in Triton's interpreter on a CPU",
    Evidence.CPU: "vLLM's CPU backend",
}

NOT_OBTAINED = frozenset({State.UNSUPPORTED, State.SKIPPED, State.NOT_RUN, State.INFRA})
"""States of cells that vLLM never saw: they have no evidence to speak of."""

EXPLAINED = (Verdict.REFUSED, Verdict.UNSUPPORTED, Verdict.SKIPPED)
"""Good verdicts that owe the reader a reason."""


KNOWN = (Verdict.XFAIL, Verdict.FLAKY)
"""Verdicts that known issues make of trouble."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why so many cells were not judged."""

    verdict: Verdict
    cells: int
    text: str


def totals_line(results: Sequence[CellResult]) -> str:
    """`3,780 cells = 432 xfail + …`: a sum that the reader can check."""
    counts = totals(results, planned=len(results))
    return f"{count(len(results), 'cell')} = " + (
        " + ".join(f"{n:,} {verdict}" for verdict, n in counts.items()) or "0"
    )


def evidence_of(results: Iterable[CellResult]) -> dict[Evidence, int]:
    """How many results were obtained in which way, in the order of the contract."""
    counts = Counter(result.evidence for result in results if result.state not in NOT_OBTAINED)
    return {evidence: counts[evidence] for evidence in Evidence if counts[evidence]}


def evidence_lines(results: Sequence[CellResult]) -> list[str]:
    counts = evidence_of(results)
    if not counts:
        return ["No cell ran: there is no evidence."]
    if len(counts) == 1:
        ((evidence, number),) = counts.items()
        head = f"All {count(number, 'result')}" if number > 1 else "The one result"
        return [f"{head}: {evidence} ({EVIDENCE_MEANING[evidence]})."]
    return [f"{count(n, 'result')}: {evidence} ({EVIDENCE_MEANING[evidence]})." for evidence, n in counts.items()]


def reasons(results: Sequence[CellResult], *, limit: int = 6) -> list[Reason]:
    """The reasons of refused, unsupported and skipped cells, most frequent first; the rest of each as one line."""
    lines: list[Reason] = []
    for verdict in EXPLAINED:
        texts = Counter(_why(result) for result in results if result.verdict is verdict).most_common()
        lines += [Reason(verdict=verdict, cells=n, text=text) for text, n in texts[:limit]]
        if rest := texts[limit:]:
            text = f"{count(len(rest), 'other reason')}, see results.json"
            lines.append(Reason(verdict=verdict, cells=sum(n for _, n in rest), text=text))
    return lines


def _why(result: CellResult) -> str:
    """The reason of a cell that was not judged, and why the matrix expects it."""
    expected = f" (expected: {one_line(result.expected)})" if result.expected else ""
    return (one_line(result.reason) or "no reason given") + expected


def expired_lines(results: Sequence[CellResult], *, limit: int = 10) -> list[str]:
    """A line for each known issue that has expired, and what of the cells it spoke of; most cells first."""
    bad: Counter[str] = Counter()
    cells: Counter[str] = Counter()
    for result in results:
        links = result.expired.split()
        cells.update(links)
        bad.update(links if result.state.bad else ())
    lines = [
        f"expired: {one_line(link)}: {count(n, 'cell')} it spoke of, {bad[link]:,} bad and {n - bad[link]:,} passing: "
        + ("decide anew (`runner known update`)" if bad[link] else "take it out (`runner known prune`)")
        for link, n in cells.most_common()
    ]
    return lines[:limit] + ([f"expired: {len(lines) - limit:,} more known issues"] if lines[limit:] else [])


def known_line(results: Sequence[CellResult]) -> str:
    """How much trouble counts as expected, and how to see the run without that; empty where there is none."""
    known = sum(result.verdict in KNOWN for result in results)
    return f"known issues explain {count(known, 'cell')}: `runner --no-known` judges without them" if known else ""


def exit_line(code: int) -> str:
    return f"exit {code}: {EXIT_MEANING.get(code, 'see the message above')}"


def by_verdict(results: Sequence[CellResult]) -> list[Verdict]:
    """The verdicts that occur, worst first."""
    return sorted({result.verdict for result in results}, key=VERDICT_ORDER.__getitem__)
