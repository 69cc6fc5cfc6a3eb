"""Since which release, or which version of a package, a cell is bad.

Results are taken from the history where it has them, and else obtained. Each run goes into the history when it ends, so
that a bisect that was interrupted goes on where it was.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner import session
from runner.bisect_points import Point
from runner.bisect_search import Turn, Word, search
from runner.errors import EnvironmentBroken, MachineError, UsageError
from runner.history import index, questions, refusals, show, story
from runner.history.questions import Symptom
from runner.history.records import Record
from runner.history.store import History
from runner.machine import choose, facts_of, planned
from runner.model import CellResult, State
from runner.options import RunOptions
from runner.reports.text import one_line

INTERRUPTED = 130
_WORDS = {True: Word.BAD, False: Word.GOOD, None: Word.UNKNOWN}


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What was found at a point, and where that is from."""

    point: str
    word: Word
    record: Record | None
    """None where it was not run, which `note` says why."""
    reused: bool = False
    note: str = ""

    def __str__(self) -> str:
        one = self.record
        said = one_line(one.found if one else self.note, 200)
        where = f"{'from' if self.reused else 'now in'} {one_line(one.run_id, 60)}" if one else ""
        kind = f", {one.evidence.value}, {where}" if one else ""
        note = f" ({one_line(self.note, 200)})" if one and self.note else ""
        return f"{one_line(self.point, 40):<14} {self.word.value:<8} {said}{kind}{note}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Where the line turns; `backwards` where it is good at its newer end, so that the turn is a repair."""

    what: str
    steps: tuple[Step, ...]
    good: Step
    bad: Step
    between: tuple[str, ...]
    backwards: bool
    symptom: Symptom

    @property
    def exact(self) -> bool:
        return not self.between


@dataclass(kw_only=True)
class Bisection:
    """Probes points, each once."""

    history: History
    options: RunOptions
    symptom: Symptom
    folder: Path
    """Of the run directories that it makes."""
    tell: Callable[[str], None]
    steps: dict[str, Step] = field(default_factory=dict)
    passed: bool = False
    """Whether the cell passes at the good end and what is probed comes after that: a refusal is a loss then."""

    def probe(self, point: Point) -> Step:
        if point.name not in self.steps:
            step = self._known(point) or self._run(point)
            self.steps[point.name] = step
            self.tell(str(step))
        return self.steps[point.name]

    def _known(self, point: Point) -> Step | None:
        """From the history, where that has results of what would run now: recipe, cases, loads, seed, evidence."""
        if point.cell.unsupported:
            because = f"a rule of the matrix excludes it: {point.cell.unsupported}"
            return Step(point=point.name, word=Word.UNKNOWN, record=None, note=because)
        on = choose(self.options.engine, self.options.address)
        plan = planned([point.cell], on, self.options.evidence, self.options.seed)
        if not plan.orders:
            return Step(point=point.name, word=Word.UNKNOWN, record=None, note=plan.planned[0].skipped)
        (order,) = plan.orders
        facts, loads = facts_of(point.chart)(order), index.loads_digest(point.file)
        fitting = [
            one
            for one in self._records(point)
            if one.evidence is order.evidence
            and (one.loads, one.seed) == (loads, self.options.seed)
            and all(one.environment.get(n) == facts[n] for n in ("cases_digest", "recipe_digest") if n in facts)
            and self.symptom.bad(one) is not None
        ]
        if not fitting:
            return None
        words = {self.symptom.bad(one) for one in fitting}
        if len(words) > 1:
            worst = [one for one in fitting if self.symptom.bad(one)][-1]
            note = f"flaky: bad {sum(map(bool, map(self.symptom.bad, fitting)))} of {len(fitting)} times, taken as bad"
            return Step(point=point.name, word=Word.BAD, record=worst, reused=True, note=note)
        return Step(point=point.name, word=_WORDS[words.pop()], record=fitting[-1], reused=True)

    def _run(self, point: Point) -> Step:
        """In a run directory of its own, which the history has afterwards; KeyboardInterrupt if interrupted."""
        shown: list[tuple[Sequence[CellResult], Path]] = []

        def take(rows: Sequence[CellResult], _code: int, where: Path, **_: object) -> None:
            shown.append((rows, where))

        options = replace(
            self.options, matrix=point.file, filters=(point.cell.id,), out=_directory(self.folder, point.name)
        )
        try:
            code = session.run(options, show=take)
        except EnvironmentBroken as error:
            return Step(point=point.name, word=Word.UNKNOWN, record=None, note=f"infra: {error}")
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        ((rows, where),) = shown
        entry = index.entry_of(where)
        self.history.add(entry, rows)
        found = self._records(point, [entry.run_id])
        if not found:
            reason = next((row.reason for row in rows if row.id == point.cell.id), "it has no result")
            return Step(point=point.name, word=Word.UNKNOWN, record=None, note=reason)
        note = found[0].reason if found[0].state in {State.INFRA, State.REFUSED, State.SKIPPED, State.MISSING} else ""
        return Step(point=point.name, word=_WORDS[self.symptom.bad(found[0])], record=found[0], note=note)

    def _records(self, point: Point, runs: Sequence[str] | None = None) -> list[Record]:
        """What the history has of a point, with its refusals judged."""
        return [
            refusals.refusal(one, point.chart.expect, passed=self.passed) if one.state is State.REFUSED else one
            for one in self.history.records([point.cell.id], runs)
        ]


def _directory(folder: Path, point: str) -> Path:
    """A new one beside those of other bisects, so that `runs/latest` and trends are about whole runs."""
    name = re.sub(r"[^a-z0-9_.]", "_", point.lower())
    return folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{name}-{secrets.token_hex(2)}"


def run(points: Sequence[Point], work: Bisection, what: str, *, backwards: bool) -> Answer:
    """The answer; UsageError where the good end is not good, or the bad one not bad."""
    work.tell(f"{what}: {len(points)} from {points[0].name} to {points[-1].name}; bad is: {work.symptom}")
    first = work.probe(points[0])
    _require(first, Word.GOOD)
    work.passed = not backwards and first.record is not None and first.record.state is State.PASS
    _require(work.probe(points[-1]), Word.BAD)
    turn: Turn = search(len(points), lambda place: work.probe(points[place]).word)
    return Answer(
        what=what,
        steps=tuple(work.steps.values()),
        good=work.steps[points[turn.good].name],
        bad=work.steps[points[turn.bad].name],
        between=tuple(points[place].name for place in turn.unknown),
        backwards=backwards,
        symptom=work.symptom,
    )


def _require(step: Step, word: Word) -> None:
    if step.word is word:
        return
    said = one_line(step.record.found if step.record else step.note, 300)
    if step.word is Word.UNKNOWN:
        kind = MachineError if step.record is None or step.record.state is State.INFRA else UsageError
        raise kind(f"{step.point} cannot be judged: {said}: name another one as --{word.value}")
    raise UsageError(
        f"{step.point} is not {word.value}: {said}: name another one as --{word.value}, or say with --buffer and --how "
        "what bad is"
    )


def lines(answer: Answer) -> list[str]:
    """The answer as a person reads it."""
    good, bad = answer.good, answer.bad
    assert good.record
    assert bad.record
    what, now, then = answer.what, "first bad", "last good"
    if answer.backwards:
        now, then = "last bad", "first good"
    found = [
        f"{now} {what}: {_at(bad)}",
        f"{then} {what}: {_at(good)}",
    ]
    if answer.between:
        names = ", ".join(answer.between)
        found.append(f"between them, not judged: {names}: the change is in one of them or in the first bad one")
    old, new = (bad, good) if answer.backwards else (good, bad)
    assert old.record
    assert new.record
    changed = questions.changed(old.record, new.record)
    found.append(f"changed: {show.changes(changed) or 'nothing that is recorded'}")
    found.append(f"how: {one_line(bad.record.found, 200)} ({bad.record.evidence.value})")
    found += [
        f"     {one_line(str(it), 100)}: required {it.required:,}, allocated {it.allocated:,}"
        for it in answer.symptom.shown_by(bad.record)
    ]
    if bad.record.reason and answer.symptom == Symptom():  # else it may be about another buffer
        found.append(f"     {one_line(bad.record.reason, 300)}")
    return found


def as_json(answer: Answer) -> dict[str, Any]:
    def plain(step: Step) -> dict[str, Any]:
        return {
            "point": step.point,
            "word": step.word.value,
            "reused": step.reused,
            "note": step.note,
            "result": story.plain(step.record) if step.record else None,
        }

    assert answer.good.record
    assert answer.bad.record
    ends = (answer.bad.record, answer.good.record) if answer.backwards else (answer.good.record, answer.bad.record)
    return {
        "over": answer.what,
        "good": answer.good.point,
        "bad": answer.bad.point,
        "between": list(answer.between),
        "repair": answer.backwards,
        "changed": {name: {"from": a, "to": b} for name, (a, b) in questions.changed(*ends).items()},
        "steps": [plain(step) for step in answer.steps],
    }


def _at(step: Step) -> str:
    assert step.record
    facts = step.record.environment
    versions = ", ".join(f"{name} {facts[name]}" for name in ("vllm", "flashinfer", "torch") if facts.get(name))
    return one_line(f"{step.point} ({versions})" if versions else step.point, 120)
