"""What a refusal is when results of several runs are looked at together: a loss where the release before passes. Pure.

A run judges its own refusals (runner/expectations.py); it cannot know that another run saw the release before pass.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from runner.axes import NEUTRAL, RELEASES
from runner.expectations import right
from runner.history.records import Record, oldest_first
from runner.matrix import Expectation
from runner.model import AxisValue, Evidence, State, Verdict

Same = tuple[frozenset[tuple[str, AxisValue]], Evidence]
"""What two results have in common that differ in the release alone."""


def judged(records: Iterable[Record], expect: Sequence[Expectation], releases: Sequence[str]) -> list[Record]:
    """The records with their refusals judged: by what the matrix expects now, and by the newest result of the cell in
    the release before."""
    every = list(records)
    before = dict(zip(releases[1:], releases, strict=False))
    newest = {(_same(one), one.release): one.state for one in oldest_first(every)}

    def passed(one: Record) -> bool:
        return newest.get((_same(one), before.get(one.release, ""))) is State.PASS

    return [refusal(one, expect, passed=passed(one)) if one.state is State.REFUSED else one for one in every]


def refusal(one: Record, expect: Sequence[Expectation], *, passed: bool) -> Record:
    """A refusal with its verdict; where the cell `passed` before, only an entry that names releases makes it right."""
    if right(expect, {**NEUTRAL, **one.axes}, one.reason, passed_before=passed):
        return replace(one, verdict=Verdict.REFUSED)
    # Not named by what was kept of its reason, it has the verdict of its run.
    return replace(one, verdict=Verdict.UNEXPECTED) if passed else one


def _same(one: Record) -> Same:
    return frozenset(item for item in one.axes.items() if item[0] != RELEASES), one.evidence
