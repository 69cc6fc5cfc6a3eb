"""Lists of failures as text, in the format that deqp-runner reads: a test a line, and its state behind a comma.

`*-sm90-*,Fail` and `*-k3-*,Crash` are such lines; `#` begins a comment. A line without a state stands in lists that
have one meaning, such as flakes. The format: https://gitlab.freedesktop.org/mesa/deqp-runner, README. Its tests are
named by regular expressions in some lists; here a line is a glob over ids in all of them.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from runner import select
from runner.errors import RunnerError, UsageError
from runner.known import judging
from runner.known.adding import Said
from runner.known.entries import Change, fewest, where
from runner.matrix import Matrix
from runner.model import Cell, State
from runner.nearest import did_you_mean, quoted
from runner.reports.text import count

MAX_BYTES = 1 << 20
FLAKE = "flake"
STATES = {state.value: state for state in (State.FAIL, State.CRASH, State.TIMEOUT, State.OVERFLOW, State.OOM)}
NAMES = [name.capitalize() for name in (*STATES, FLAKE)]


@dataclass(frozen=True, slots=True)
class Line:
    """What one line says of the cells that its glob matches."""

    number: int
    glob: str
    state: State
    flaky: bool


def read(path: Path, *, otherwise: State) -> tuple[Line, ...]:
    """The lines of a list; `otherwise` is the state where a line has none, or says Flake. UsageError with all mistakes,
    each as `file:line: message`."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}): name a list of globs and states") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8: name a list of globs and states, as text") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path}: larger than 1 MiB: this is hardly a list of known issues")
    found, mistakes = [], []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].strip()
        if not words:
            continue
        glob, comma, name = (word.strip() for word in words.rpartition(","))
        glob, name = (glob, name.lower()) if comma else (words, "")
        if not glob or "," in glob:
            mistakes.append(
                f"{path}:{number}: {quoted(words)} is not one glob and one state: write it as *-sm90-*,Fail"
            )
        elif comma and name not in (*STATES, FLAKE):
            near = did_you_mean(name, (*STATES, FLAKE)) or f"; there is {', '.join(NAMES)}"
            mistakes.append(f"{path}:{number}: unknown state {quoted(words.rpartition(',')[2].strip())}{near}")
        else:
            found.append(Line(number, glob, STATES.get(name, otherwise), name == FLAKE))
    if mistakes:
        raise UsageError("\n".join(mistakes))
    if not found:
        raise UsageError(f"{path}: has no line: nothing to import")
    return tuple(found)


def entries(lines: Sequence[Line], path: Path, chart: Matrix, said: Said, *, today: date) -> Change:
    """Few entries that speak of exactly the cells that the globs match; not of those which an entry covers already.

    A glob means what it does for `--filter`. UsageError where one matches nothing that could run.
    """
    cells: dict[tuple[State, bool], dict[str, Cell]] = defaultdict(dict)
    excluded: dict[str, Cell] = {}
    mistakes = []
    for line in lines:
        try:
            matched = select.select(chart, filters=[line.glob])
        except RunnerError as error:
            mistakes.append(f"{path}:{line.number}: {error}")
            continue
        supported = {cell.id: cell for cell in matched if not cell.unsupported}
        if not supported:
            mistakes.append(f"{path}:{line.number}: rules exclude all that {quoted(line.glob)} matches")
        cells[line.state, line.flaky].update(supported)
        excluded |= {cell.id: cell for cell in matched if cell.unsupported}
    if mistakes:
        raise UsageError("\n".join(mistakes))
    added, already = [], 0
    for (state, flaky), found in cells.items():
        new = [cell.axes for cell in found.values() if not _is_known(cell, state, chart, today)]
        already += len(found) - len(new)
        boxes = fewest(new, [cell.axes for cell in excluded.values()], chart)
        added += [replace(said.entry(state, flaky=flaky), selector=where(axes, chart)) for axes in boxes]
    notes = (f"left alone: {count(already, 'cell')} known so already",) if already else ()
    return Change(added=tuple(added), notes=notes)


def _is_known(cell: Cell, state: State, chart: Matrix, today: date) -> bool:
    """Whether an entry that counts expects this state here, whatever the buffer."""
    return any(
        entry.state is state and not entry.buffer and not entry.how
        for entry in judging.living(chart.known, cell.axes, today)
    )
