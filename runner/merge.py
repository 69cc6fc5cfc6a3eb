"""Joins run directories of many machines or shards into one new one.

Everything is made anew from the journals, so that `runner report` and `runner resume` do with the new directory what
they do with any.
"""

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from runner import candidates, journal, matrix, outcome, output, results, rundir, session
from runner import merge_rules as rules
from runner import plan as planning
from runner.axes import LABEL
from runner.errors import UsageError
from runner.history import index
from runner.model import (
    Candidate,
    CandidateKind,
    CellFinished,
    CellOutcome,
    Event,
    RunFinished,
    RunStarted,
)
from runner.nearest import quoted
from runner.options import RunOptions
from runner.plan import Plan, Planned
from runner.reports import files
from runner.reports.text import count, one_line

SOURCES = "merged.json"
"""Of a merged run: the runs that it was made of, each with its machines."""
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
    finished: bool
    """Whether it came to its end; else it was killed, or is at it still."""
    sources: tuple[tuple[str, tuple[str, ...]], ...]
    """Ids of the runs that it stands for, and their machines: its own, or of a merged one those it was made of."""


def merge(out: Path, runs: Sequence[Path]) -> int:
    """Write the new run directory and say what is in it; UsageError where the runs do not belong together."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out}: is there already: what is merged needs a directory of its own, name another one")
    parts = sorted((read(run) for run in runs), key=lambda part: (part.asked.run_id, str(part.path)))
    first = parts[0]
    _check(parts)
    outcomes = {cell: rules.in_order(found) for cell, found in rules.gathered(part.outcomes for part in parts).items()}
    if found := rules.clashes(outcomes.values(), seed=first.asked.options.seed):
        raise UsageError(_say(found))
    chart = candidates.join(first.chart, _candidates(parts))
    plan = rules.planned((part.planned for part in parts), outcomes, chart)
    directory = rundir.create(out)
    chart = candidates.keep(chart, directory.path)
    shutil.copyfile(first.path / session.MATRIX_COPY, directory.path / session.MATRIX_COPY)
    results.write_atomically(directory.path / session.PLAN, planning.to_json(plan))
    _write_sources(directory.path, parts)
    _write_journal(directory, plan, outcomes)
    _copy_logs(parts, outcomes, directory.path)
    rundir.keep(directory, _options(parts))
    rows = session.judged(directory.path)
    code = outcome.exit_code(row.verdict for row in rows)
    files.write(directory.path, rows, exit_code=code, title=directory.run_id)
    index.remember(directory.path, rows, output.note)
    for run_id, machines in _all_sources(parts):
        output.note(f"{run_id}: {', '.join(map(one_line, machines)) or 'no machine named'}")
    for part in parts:
        if not part.finished:
            output.note(f"{part.path}: has not come to its end: what it has no result for counts as not run")
    for line in rules.notes(outcomes):
        output.note(line)
    output.emit(f"{count(len(rows), 'cell')} of {count(len(runs), 'run')} in {out}")
    output.note(f"next: runner report {shlex.quote(str(out))}")
    return 0


def read(run: Path) -> Part:
    """A run directory; UsageError where it is none, or has lost what is needed."""
    asked = rundir.asked(run)
    for name in (session.MATRIX_COPY, session.PLAN, session.EVENTS):
        if not (run / name).is_file():
            raise UsageError(f"{run}: has no {name}: merge whole run directories, as `runner` made them")
    events = list(journal.read(run / session.EVENTS))
    outcomes = tuple(event.outcome for event in events if isinstance(event, CellFinished))
    machines = tuple(sorted({name for one in outcomes if (name := one.environment.get("machine", ""))}))
    return Part(
        path=run,
        asked=asked,
        chart=matrix.load(run / session.MATRIX_COPY),
        candidates=candidates.kept(run),
        planned=planning.read(run / session.PLAN).planned,
        outcomes=outcomes,
        finished=bool(events) and isinstance(events[-1], RunFinished),
        sources=_read_sources(run) or ((asked.run_id, machines),),
    )


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


def _options(parts: Sequence[Part]) -> RunOptions:
    """What `runner resume` goes on with: as the first was asked for, but for what chose its cells."""
    options = replace(parts[0].asked.options, filters=(), tier=None, shard=None, candidates=(), out=None, job="")
    return replace(options, require_device=any(part.asked.options.require_device for part in parts))


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
    """The candidate with the path of its patch in the run directory, which may have been carried here.

    UsageError where that is not what the run says it was.
    """
    if not re.fullmatch(LABEL, candidate.name):
        raise UsageError(f"{run}: a candidate is called {quoted(candidate.name)}, which is no name of one")
    copy = run / candidates.FOLDER / f"{candidate.name}.patch"
    if candidate.kind is CandidateKind.PATCH and not (
        copy.is_file() and candidates.file_digest(copy.read_bytes()) == candidate.digest
    ):
        raise UsageError(f"{copy}: is not the patch that was judged as {candidate}: merge the run as it was made")
    return replace(candidate, path=str(copy)) if candidate.kind is CandidateKind.PATCH else candidate


def _say(found: Sequence[rules.Clash]) -> str:
    shown = "\n".join(f"  {clash}" for clash in found[:20])
    more = f"\n  … and {count(len(found) - 20, 'other')}" if len(found) > 20 else ""
    return (
        f"{count(len(found), 'cell')} with results that disagree, of the same evidence and revision:\n{shown}{more}\n"
        "Nothing was written. Find out which is right (`runner history CELL` tells a flake), and leave out the other."
    )


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
    home = {rules.dump(one): part.path for part in parts for one in part.outcomes}
    for found in outcomes.values():
        log = found[-1].log
        source = home[rules.dump(found[-1])].resolve()
        folder = (source / log).resolve().parent  # a journal may name any path
        if log and folder.is_dir() and folder.is_relative_to(source / "cells"):
            shutil.copytree(folder, out / folder.relative_to(source), symlinks=True, dirs_exist_ok=True)
