"""results.json: one object for each planned cell, checked when it is read back; its schema ships beside this file."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from runner import candidates, expectations, outcome
from runner.axes import NEUTRAL, lacking
from runner.errors import MachineError, UsageError
from runner.matrix import Expectation, KnownIssue
from runner.model import (
    ENVIRONMENT,
    AxisValue,
    Cell,
    CellOutcome,
    CellResult,
    How,
    Overflow,
    State,
)
from runner.plan import Planned

NAME = "results.json"
SCHEMA = Path(__file__).with_name("results.schema.json")

_ROW = TypeAdapter(CellResult)
_ROWS = TypeAdapter(tuple[CellResult, ...])


def build(
    planned: Sequence[Planned],
    outcomes: Iterable[CellOutcome],
    *,
    known: Sequence[KnownIssue],
    expect: Sequence[Expectation],
    before: Mapping[AxisValue, AxisValue],
    repro_of: Callable[[Cell], str],
    today: date,
) -> tuple[CellResult, ...]:
    """A result for every planned cell, in the order of the plan; a result that did not arrive is a result.

    Known issues, expected refusals, and which release is before which, are those of the matrix.
    """
    by_id = {one.cell.id: one for one in outcomes}
    results = expectations.judged(
        [_result(one, by_id.get(one.cell.id), repro_of) for one in planned],
        known=known,
        expect=expect,
        before=before,
        today=today,
    )
    outcome.totals(results, planned=len(planned))
    return results


def _result(one: Planned, found: CellOutcome | None, repro_of: Callable[[Cell], str]) -> CellResult:
    cell = one.cell
    if cell.unsupported:
        return bare(one, State.UNSUPPORTED, cell.unsupported)
    if one.skipped:
        return replace(bare(one, State.SKIPPED, one.skipped), repro=repro_of(cell))
    if found is None:
        return replace(bare(one, State.NOT_RUN, "the run ended before this cell began"), repro=repro_of(cell))
    state, reason = outcome.of(found)
    candidate = candidates.recorded(found.environment.get("candidate", ""))

    def told(text: str) -> str:
        return candidates.as_of_author(_storable(text), candidate)

    result = bare(one, state, told(reason))
    return replace(
        result,
        evidence=found.evidence,
        duration_s=found.duration_s,
        cases=tuple(replace(case, name=_storable(case.name), message=told(case.message)) for case in found.cases),
        overflow=_smallest(overflow for case in found.cases for overflow in case.overflow),
        repro=repro_of(cell),
        environment={**result.environment, **found.environment},
        resolved=dict(found.resolved),
        reruns=found.reruns,
        ended_at=found.ended_at,
    )


def bare(one: Planned, state: State, reason: str) -> CellResult:
    """The result of a cell of which nothing but this is to be said."""
    return CellResult(
        id=one.cell.id,
        axes=dict(one.cell.axes),
        state=state,
        verdict=expectations.naked(state),
        evidence=one.evidence,
        reason=reason,
        environment=dict.fromkeys(ENVIRONMENT, ""),
    )


def _storable(text: str) -> str:
    """Without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def made_of(environment: Mapping[str, str]) -> str:
    """What a result's environment is made of: the digest of its recipe or, of an image made by hand, Docker's id."""
    return environment.get("recipe_digest", "") or environment.get("image_digest", "")


def to_json(results: Sequence[CellResult]) -> str:
    """The text of results.json: an array, a line for each cell."""
    return "[\n" + ",\n".join(_ROW.dump_json(result).decode() for result in results) + "\n]\n"


def read(run: Path) -> tuple[CellResult, ...]:
    """The results of a run directory (or of a results.json); UsageError where there are none."""
    path = run / NAME if run.is_dir() else run
    try:
        return parse(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file: name a run directory that has a {NAME}, such as runs/latest") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}): name a run directory") from None


def parse(data: bytes, name: str) -> tuple[CellResult, ...]:
    """The results that a file of this name holds; UsageError where it holds something else."""
    try:
        rows = _ROWS.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise UsageError(f"{name}: not the results of a run: {where}: {first['msg']}") from None
    for number, row in enumerate(rows):
        if axis := lacking(row.axes):
            raise UsageError(f"{name}: not the results of a run: {number}.axes: there is no axis {axis}")
    return tuple(_with_all_axes(row) for row in rows)


def _with_all_axes(row: CellResult) -> CellResult:
    """A run from before an axis was thought of has what that axis says by itself."""
    missing = {axis: value for axis, value in NEUTRAL.items() if axis not in row.axes}
    return replace(row, axes={**row.axes, **missing})


def schema() -> dict[str, Any]:
    """The JSON schema of results.json, as written: every field is there."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "attnmatrix results.json",
        **_ROWS.json_schema(mode="serialization"),
    }


def schema_text() -> str:
    return json.dumps(schema(), indent=1) + "\n"


def write_atomically(path: Path, text: str, *, remedy: str = "make room, or give --out DIR") -> None:
    """The file is either the old one or the new one, whole: a reader or a kill in between sees no half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)  # mkstemp gives 0600: others read results too
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MachineError(f"{path}: cannot be written ({error.strerror}): {remedy}") from None


def _smallest(overflows: Iterable[Overflow]) -> tuple[Overflow, ...]:
    """Of what several cases found in one buffer and in one way, that with the fewest query tokens."""
    best: dict[tuple[str, How], Overflow] = {}
    for found in overflows:
        key = (found.buffer, found.how)
        if key not in best or sum(found.batch.query_lens) < sum(best[key].batch.query_lens):
            best[key] = found
    return tuple(best.values())
