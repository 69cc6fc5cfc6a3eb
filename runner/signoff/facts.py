"""A row of results made again from what it rests on: its plan and its cases. UsageError where it says something else.

What a row says of itself is not believed. The state must follow from the cases, or tell what befell the process; the
verdict, the links and the reason follow from the state and from the known issues of the matrix.
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from runner import expectations, outcome, results
from runner.errors import UsageError
from runner.expectations import DEATHS
from runner.matrix import Matrix
from runner.model import CaseResult, Cell, CellOutcome, CellResult, Load, Overflow, State
from runner.plan import Planned
from runner.reports.text import one_line

BEFALLS = DEATHS | {State.MISSING, State.INFRA, State.NOT_RUN}
"""What no case has to say: it happens to the process that runs them, or keeps it from running."""
_MARK = "\0"
_ROUNDING_S = 0.01
_OPTIONS = {"--matrix", "--seed", "--candidate"}
_NO_LOAD = Load(
    name="", max_num_seqs=1, max_num_batched_tokens=1, max_model_len=1, block_size=1, num_heads=1, num_kv_heads=1,
    head_size=1, dtype="",
)  # fmt: skip


def judged(
    planned: Sequence[Planned], rows: Sequence[CellResult], chart: Matrix, today: date
) -> tuple[CellResult, ...]:
    """The rows of a run as `runner report` would write them with this matrix on that day."""
    made = [_bare(one, row, chart, today) for one, row in zip(planned, rows, strict=True)]
    if len(found := {options_of(row) for row in rows if row.repro}) > 1:
        raise UsageError(f"its cells are shown again in different ways: {' and '.join(map(str, sorted(found)))}")
    return _expected(made, chart, today)


def _bare(one: Planned, row: CellResult, chart: Matrix, today: date) -> CellResult:
    """The row without what the matrix expects of it."""
    made = _made(one, row)
    if made.state not in BEFALLS or not one.runs:
        return made
    (noted,) = _expected([replace(made, reason=_MARK)], chart, today)
    return replace(made, reason=row.reason.removesuffix(noted.reason.partition(_MARK)[2]))


def check(row: CellResult) -> None:
    """The same for a row that has no plan beside it, such as one of an earlier release."""
    unsupported = row.reason if row.state is State.UNSUPPORTED else ""
    skipped = row.reason if row.state is State.SKIPPED else ""
    cell = Cell(id=row.id, axes=row.axes, labels={}, load=_NO_LOAD, unsupported=unsupported)
    _made(Planned(cell=cell, evidence=row.evidence, skipped=skipped), row)


def _expected(rows: Sequence[CellResult], chart: Matrix, today: date) -> tuple[CellResult, ...]:
    return expectations.judged(rows, known=chart.known, expect=chart.expect, before=chart.before, today=today)


def _made(one: Planned, row: CellResult) -> CellResult:
    """The row as its cases and its plan make it, before anything is expected of it."""
    check_cases(row)
    options_of(row)
    found = _outcome(one, row)
    (made,) = results.build(
        [one], [found], known=(), expect=(), before={}, repro_of=lambda _: row.repro, today=date.min
    )
    if one.runs:
        made = replace(made, reason=outcome.of(found)[1])  # without a word about a refusal that nothing expects
    if made.state is not row.state:
        _check_befell(row, made.state)
        made = replace(made, state=row.state, verdict=expectations.naked(row.state))
    if made.overflow != row.overflow:
        raise UsageError(f"{one_line(row.id)} has an overflow that its cases do not have, or lacks one that they have")
    return made


def _outcome(one: Planned, row: CellResult) -> CellOutcome:
    return CellOutcome(
        cell=one.cell,
        evidence=row.evidence,
        cases=row.cases,
        duration_s=row.duration_s,
        environment=row.environment,
        resolved=row.resolved,
        reruns=row.reruns,
        ended_at=row.ended_at,
    )


def _check_befell(row: CellResult, made: State) -> None:
    """UsageError unless the row says of its process what is worse than what the cases say."""
    worse = not row.cases or outcome.BADNESS[row.state] < outcome.BADNESS[made]
    if row.state in BEFALLS and made not in {State.UNSUPPORTED, State.SKIPPED} and worse:
        return
    if made in {State.UNSUPPORTED, State.SKIPPED}:
        why = f"the plan says {made}"
    elif row.state in {State.UNSUPPORTED, State.SKIPPED}:
        why = "the plan says that it runs"
    else:
        why = f"its cases say {made}" if row.cases else "it has no case"
    raise UsageError(f"{one_line(row.id)} says {row.state}, and {why}")


def check_cases(row: CellResult) -> None:
    """UsageError for a time or a size that there cannot be, or a case that is there twice."""
    times = [row.duration_s, *(case.duration_s for case in row.cases)]
    if not all(math.isfinite(time) and time >= 0 for time in times):
        raise UsageError(f"{one_line(row.id)} has a duration that is no number of seconds")
    if sum(case.duration_s for case in row.cases) > row.duration_s + _ROUNDING_S and row.state not in BEFALLS:
        raise UsageError(f"{one_line(row.id)} took less time than its cases")
    if len({case.name for case in row.cases}) < len(row.cases):
        raise UsageError(f"{one_line(row.id)} has a case twice")
    for found in _overflows(row.cases):
        lengths = zip(found.batch.query_lens, found.batch.seq_lens, strict=False)
        sound = len(found.batch.query_lens) == len(found.batch.seq_lens) and all(0 <= q <= s for q, s in lengths)
        if not (sound and found.required > found.allocated >= 0):
            raise UsageError(f"{one_line(row.id)} has an overflow that is none: {one_line(outcome.describe(found))}")


def options_of(row: CellResult) -> tuple[tuple[str, str], ...]:
    """What the line that shows a cell again says of its run: the matrix and the seed.

    UsageError where the line, which people copy into a shell, does anything else.
    """
    if row.state is State.UNSUPPORTED and not row.repro:
        return ()
    try:
        words = shlex.split(row.repro)
    except ValueError:
        words = []
    options = dict(zip(words[2:-1:2], words[3:-1:2], strict=False))
    whole = ["runner", "repro", *(word for option in options.items() for word in option), row.id]
    if options.keys() - _OPTIONS or shlex.join(whole) != row.repro:
        raise UsageError(f"{one_line(row.id)} is shown again by another command: {one_line(row.repro) or 'none'}")
    return tuple(option for option in options.items() if option[0] != "--candidate")


def _overflows(cases: Sequence[CaseResult]) -> Iterator[Overflow]:
    return (found for case in cases for found in case.overflow)
