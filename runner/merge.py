"""Joins run directories of many machines or shards into one new one.

Everything is made anew from the journals, so that reports, `runner report` and `runner resume` do with the new directory
what they do with any. All outcomes are kept, the one that counts last; so merging is the union of sets: in whatever order
and however often, the same comes out.
"""

import json
import shlex
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from runner import candidates, journal, matrix, outcome, output, results, rundir, session
from runner import plan as planning
from runner.errors import UsageError
from runner.history import index
from runner.history.records import Revision, revision
from runner.model import (
    Candidate,
    CandidateKind,
    CellFinished,
    CellOutcome,
    Event,
    Evidence,
    RunFinished,
    RunStarted,
    State,
)
from runner.plan import Plan, Planned
from runner.reports import files
from runner.reports.text import count

SOURCES = "merged.json"
"""Of a merged run: the runs that it was made of, each with its machines."""
RANK = {kind: position for position, kind in enumerate(Evidence)}
"""Evidence, best first: what was seen on a device says more than what was not; the order of the contract."""
YIELDING = (State.MISSING, State.INFRA, State.SKIPPED, State.NOT_RUN)
"""States that say nothing of the product, and give way to any result; among themselves the first one stays."""
_CANDIDATES: TypeAdapter[tuple[Candidate, ...]] = TypeAdapter(tuple[Candidate, ...])
_SOURCES: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(list[dict[str, Any]])


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One of the runs to be joined."""

    path: Path
    asked: rundir.Asked
    chart: matrix.Matrix
    """Without candidates."""
    candidates: tuple[Candidate, ...]
    planned: tuple[Planned, ...]
    outcomes: tuple[CellOutcome, ...]
    sources: tuple[tuple[str, tuple[str, ...]], ...]
    """Ids of the runs that it stands for, and their machines: its own, or of a merged one those it was made of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clash:
    """Two outcomes of one cell that cannot both be right."""

    cell: str
    evidence: Evidence
    says: tuple[str, ...]
    """What each says, and where it was obtained."""

    def __str__(self) -> str:
        return f"{self.cell} ({self.evidence.value}): {' against '.join(self.says)}"


def merge(out: Path, runs: Sequence[Path]) -> int:
    """Write the new run directory and say what is in it; UsageError where the runs do not belong together."""
    parts = [read(run) for run in runs]
    first = min(parts, key=lambda part: part.asked.run_id)
    _check(parts)
    outcomes = {cell: in_order(found) for cell, found in gathered(part.outcomes for part in parts).items()}
    if found := clashes(outcomes.values(), seed=first.asked.options.seed):
        raise UsageError(_say(found))
    chart = candidates.join(first.chart, _candidates(parts))
    plan = planned(parts, chart)
    directory = rundir.create(out)
    chart = candidates.keep(chart, directory.path)
    shutil.copyfile(first.path / session.MATRIX_COPY, directory.path / session.MATRIX_COPY)
    results.write_atomically(directory.path / session.PLAN, planning.to_json(plan))
    _write_sources(directory.path, parts)
    _write_journal(directory, plan, outcomes)
    _copy_logs(parts, outcomes, directory.path)
    rundir.keep(directory, replace(first.asked.options, filters=(), tier=None, shard=None, candidates=(), out=None))
    rows = session.judged(directory.path)
    code = outcome.exit_code(row.verdict for row in rows)
    files.write(directory.path, rows, exit_code=code, title=directory.run_id)
    index.remember(directory.path, rows, output.note)
    for line in notes(outcomes, parts):
        output.note(line)
    output.emit(f"{count(len(rows), 'cell')} of {count(len(runs), 'run')} in {out}")
    output.note(f"next: runner report {shlex.quote(str(out))}")
    return 0


def read(run: Path) -> Part:
    """A run directory; UsageError where it is none, or has lost what is needed."""
    asked = rundir.asked(run)
    for name in (session.MATRIX_COPY, session.PLAN):
        if not (run / name).is_file():
            raise UsageError(f"{run}: has no {name}: merge whole run directories, as `runner` made them")
    events = journal.read(run / session.EVENTS) if (run / session.EVENTS).exists() else []
    outcomes = tuple(event.outcome for event in events if isinstance(event, CellFinished))
    machines = tuple(sorted({name for one in outcomes if (name := one.environment.get("machine", ""))}))
    return Part(
        path=run,
        asked=asked,
        chart=matrix.load(run / session.MATRIX_COPY),
        candidates=candidates.kept(run),
        planned=planning.from_json((run / session.PLAN).read_bytes()).planned,
        outcomes=outcomes,
        sources=_read_sources(run) or ((asked.run_id, machines),),
    )


def gathered(parts: Iterable[Iterable[CellOutcome]]) -> dict[str, set[str]]:
    """By cell, each outcome once, as the JSON by which outcomes are compared."""
    found: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        for one in part:
            found[one.cell.id].add(_dump(one))
    return found


def in_order(found: Iterable[str]) -> tuple[CellOutcome, ...]:
    """Outcomes of one cell, the one that counts last."""
    return tuple(sorted((_load(text) for text in found), key=weight))


def weight(one: CellOutcome) -> tuple[int, int, str, str]:
    """The heaviest outcome of a cell counts: a result before none, better evidence before other, then the newest."""
    state = outcome.of(one)[0]
    yields = YIELDING.index(state) + 1 if state in YIELDING else 0
    return -yields, -RANK[one.evidence] if not yields else 0, one.ended_at, _dump(one)


def clashes(outcomes: Iterable[Sequence[CellOutcome]], *, seed: int) -> list[Clash]:
    """Cells with results of the same evidence and revision that found different things: another state, or other
    overflows."""
    found = []
    for of_cell in outcomes:
        alike: dict[tuple[Evidence, Revision], dict[str, CellOutcome]] = defaultdict(dict)
        for one in of_cell:
            if outcome.of(one)[0] not in YIELDING:
                key = one.evidence, revision(one.environment, seed=seed)
                alike[key].setdefault(_found(one), one)
        found += [
            Clash(cell=of_cell[0].cell.id, evidence=evidence, says=tuple(_where(what, one) for what, one in said.items()))
            for (evidence, _), said in alike.items()
            if len(said) > 1
        ]
    return found


def planned(parts: Iterable[Part], chart: matrix.Matrix) -> Plan:
    """All cells of all plans in the order of the matrix, each with the best evidence that a plan has for it."""
    best: dict[str, Planned] = {}
    for part in parts:
        for one in part.planned:
            kept = best.setdefault(one.cell.id, one)
            if RANK[one.evidence] < RANK[kept.evidence]:
                best[one.cell.id] = one
    places = {axis: {value: place for place, value in enumerate(values)} for axis, values in chart.axes.items()}
    return Plan(
        tuple(
            sorted(
                best.values(),
                key=lambda one: ([places[axis].get(one.cell.axes.get(axis), -1) for axis in places], one.cell.id),
            )
        )
    )


def notes(outcomes: dict[str, tuple[CellOutcome, ...]], parts: Sequence[Part]) -> list[str]:
    """What a person should know: which run ran where, and what does not count beside what does."""
    lines = [f"{run_id}: {', '.join(machines) or 'no machine named'}" for run_id, machines in _all_sources(parts)]
    over: Counter[str] = Counter()
    for found in outcomes.values():
        real = [one for one in found if outcome.of(one)[0] not in YIELDING]
        for one in real[:-1]:
            kept = real[-1]
            if one.evidence is not kept.evidence:
                differs = "" if _found(one) == _found(kept) else ", which found something else"
                over[f"{kept.evidence.value} counts, not {one.evidence.value}{differs}"] += 1
            elif revision(one.environment) != revision(kept.environment):
                over["the newer counts, of another revision (vllm, recipe or cases)"] += 1
    return lines + [f"{count(number, 'cell')}: {what}" for what, number in sorted(over.items())]


def _check(parts: Sequence[Part]) -> None:
    """UsageError where the runs were asked different questions."""
    first = parts[0]
    for other in parts[1:]:
        for what, differs in (
            ("matrix.yaml", other.chart != first.chart),
            ("--seed", other.asked.options.seed != first.asked.options.seed),
            ("--no-known", other.asked.options.known != first.asked.options.known),
        ):
            if differs:
                raise UsageError(
                    f"{first.path} and {other.path} differ in {what}: their results answer different questions: merge "
                    "runs of one matrix, asked alike"
                )


def _candidates(parts: Sequence[Part]) -> tuple[Candidate, ...]:
    """Of all parts, by name; UsageError where two that have the same name are not the same."""
    found: dict[str, tuple[Candidate, Path]] = {}
    for part in parts:
        for one in part.candidates:
            kept, where = found.setdefault(one.name, (one, part.path))
            if (kept.kind, kept.digest, kept.over) != (one.kind, one.digest, one.over):
                raise UsageError(
                    f"candidate {one.name} is {kept} in {where}, and {one} in {part.path}: two things under one name: "
                    "run one of them again under another"
                )
    return tuple(_where_it_is(*found[name]) for name in sorted(found))


def _where_it_is(candidate: Candidate, run: Path) -> Candidate:
    """The candidate with the path of its patch in the run directory, which may have been carried here from elsewhere."""
    copy = run / candidates.FOLDER / f"{candidate.name}.patch"
    return replace(candidate, path=str(copy)) if candidate.kind is CandidateKind.PATCH and copy.is_file() else candidate


def _say(found: Sequence[Clash]) -> str:
    shown = "\n".join(f"  {clash}" for clash in found[:20])
    more = f"\n  … and {count(len(found) - 20, 'other')}" if len(found) > 20 else ""
    return (
        f"{count(len(found), 'cell')} with results that disagree, of the same evidence and revision:\n{shown}{more}\n"
        "Nothing was written. Find out which is right (`runner history CELL` tells a flake), and merge without the other."
    )


def _found(one: CellOutcome) -> str:
    """What an outcome says of the product."""
    overflows = sorted({f"{o.buffer} {o.how.value}" for case in one.cases for o in case.overflow})
    return ": ".join([outcome.of(one)[0].value, ", ".join(overflows)] if overflows else [outcome.of(one)[0].value])


def _where(what: str, one: CellOutcome) -> str:
    from runner.reports.text import one_line

    return one_line(f"{what} on {one.environment.get('machine', '') or 'a machine without a name'} at {one.ended_at or 'an unknown time'}")


def _all_sources(parts: Sequence[Part]) -> list[tuple[str, tuple[str, ...]]]:
    return sorted({source for part in parts for source in part.sources})


def _write_sources(out: Path, parts: Sequence[Part]) -> None:
    found = [{"run_id": run_id, "machines": list(machines)} for run_id, machines in _all_sources(parts)]
    results.write_atomically(out / SOURCES, json.dumps(found, indent=1) + "\n")


def _read_sources(run: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Of a merged run; nothing for another one."""
    try:
        found = _SOURCES.validate_json((run / SOURCES).read_bytes())
        return tuple((str(one["run_id"]), tuple(map(str, one["machines"]))) for one in found)
    except FileNotFoundError:
        return ()
    except (OSError, ValidationError, KeyError, TypeError) as error:
        raise UsageError(f"{run / SOURCES}: cannot be read: {error}") from None


def _write_journal(run: rundir.RunDirectory, plan: Plan, outcomes: dict[str, tuple[CellOutcome, ...]]) -> None:
    order = [one.cell.id for one in plan.planned]
    events: list[Event] = [RunStarted(run_id=run.run_id, argv=("merge",), versions={}, planned=len(order))]
    events += [CellFinished(outcome=one) for cell in order for one in outcomes.get(cell, ())]
    with journal.Journal(run.path / session.EVENTS) as file:
        for event in [*events, RunFinished()]:
            file.append(event)


def _copy_logs(parts: Sequence[Part], outcomes: dict[str, tuple[CellOutcome, ...]], out: Path) -> None:
    """The logs of each outcome that counts, from the run that has it."""
    home = {_dump(one): part.path for part in parts for one in part.outcomes}
    for found in outcomes.values():
        log = found[-1].log
        source = home[_dump(found[-1])].resolve()
        folder = (source / log).parent
        if log and folder.is_dir() and folder.resolve().is_relative_to(source / "cells"):
            shutil.copytree(folder, out / folder.relative_to(source), symlinks=True, dirs_exist_ok=True)


_OUTCOME: TypeAdapter[CellOutcome] = TypeAdapter(CellOutcome)


def _dump(one: CellOutcome) -> str:
    return _OUTCOME.dump_json(one).decode()


def _load(text: str) -> CellOutcome:
    return _OUTCOME.validate_json(text)
