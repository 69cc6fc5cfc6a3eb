"""A comparison as Markdown that stands in a pull request: it says what was judged and how, and how to do it again.

Nothing in it is of this machine: no path of its disk, no run directory.
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runner import __version__
from runner.axes import NEUTRAL, AxisValues
from runner.candidates import recorded
from runner.compare import Change, Comparison, Harm, judged, troubles
from runner.model import CandidateKind, CellResult, Evidence, Load, Overflow
from runner.reports.changes import Alike, alike, domain, exit_line, fields, headline, sides, summary_lines
from runner.reports.fields import Field
from runner.reports.markdown import block, candidate_words, code, field_text, file_name
from runner.reports.patterns import Domain
from runner.reports.text import count, one_line, public

LIMIT = 65_000
"""Bytes of it: a comment on GitHub has 65,536 characters at most."""
ROWS = 20
"""Buffers in the table."""
REASONS = 3
"""Reasons why cells were not judged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What results do not say of the run that they are of."""

    loads: Mapping[str, Load] = field(default_factory=dict)
    """The deployment shapes, by name."""
    taken: AxisValues = field(default_factory=dict)
    """The values that a run takes of each axis where nothing is asked for."""
    options: Sequence[str] = ()
    """Other words of its command line that decide what is found."""


def markdown(found: Comparison, *, title: str, setting: Setting | None = None, limit: int = LIMIT) -> str:
    """At most `limit` bytes; what matters most comes first, and what did not fit is counted."""
    setting = setting or Setting()
    axes, groups = domain(found), alike(found)
    opened = [group for group in groups if _is_open(group)]
    head = "\n".join([f"## {code(public(title))}\n", *_judged(found), *_deployment(found, setting), *_buffers(found)])
    not_judged = "".join(f"- {line}\n" for line in _not_judged(found))
    tail = "\n".join(["", *_again(found, setting), f"**{exit_line(found)}**", ""])
    left = limit - len((head + not_judged + tail).encode()) - 500
    open_text, left = _section("### What is still open\n\n" + not_judged, opened, axes, left)
    closed = [group for group in groups if not _is_open(group)]
    closed_text, _ = _section("\n### What changed besides\n", closed, axes, left)
    return f"{head}\n{open_text}{closed_text if closed else ''}{tail}"


def _is_open(group: Alike) -> bool:
    """Whether there is trouble after it, or nobody knows."""
    after = group.changes[0].after
    return group.worse or group.lost or not judged(after) or group.changes[0].harm[1] > Harm.NONE


def _judged(found: Comparison) -> Iterator[str]:
    yield "### What was judged, and how\n"
    every = [*found.changes, *found.unjudged]
    for name, side in zip(found.sides, ("before", "after"), strict=True):
        rows = [row for change in every if (row := getattr(change, side)) is not None and row.environment]
        for environment in dict.fromkeys(_made_of(row) for row in rows if any(row.environment.values())):
            yield f"- {side}, {code(name)}: {environment}"
    cases = sorted({row.environment.get("cases_digest", "") for change in every for row in sides(change)} - {""})
    judge = f", cases {', '.join(map(code, cases[:2]))}" if cases else ""
    yield f"- by attnmatrix {__version__}{judge}"
    for line in summary_lines(found):
        yield f"- {public(line)}"
    yield ""


def _made_of(row: CellResult) -> str:
    held = {name: row.environment.get(name, "") for name in ("vllm", "torch", "flashinfer")}
    versions = ", ".join(f"{name} {code(version, 60)}" for name, version in held.items() if version)
    candidate = recorded(row.environment.get("candidate", ""))
    return f"{candidate_words(candidate)}; {versions}" if candidate else versions


def _deployment(found: Comparison, setting: Setting) -> Iterator[str]:
    values = _values(found)
    yield "### Deployment\n"
    if loads := [setting.loads[str(name)] for name in values.get("load", ()) if str(name) in setting.loads]:
        yield "| load | sequences N | batched tokens T | length L | block size | heads, KV heads | head size | dtype |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
        for load in loads:
            numbers = (load.max_num_seqs, load.max_num_batched_tokens, load.max_model_len, load.block_size)
            cells = [code(load.name, in_table=True), *(f"{number:,}" for number in numbers)]
            cells += [f"{load.num_heads}, {load.num_kv_heads}", str(load.head_size), code(load.dtype, in_table=True)]
            yield f"| {' | '.join(cells)} |"
        yield ""
    words = [
        f"{axis} {', '.join(map(str, some))}"
        for axis, some in values.items()
        if axis not in (found.along, "load") and some != [NEUTRAL.get(axis)]
    ]
    yield code("; ".join(words), 2000) + "\n"


@dataclass
class _Seen:
    """One buffer with one load: of how many cells it is too small, and at worst how much, on each side."""

    cells: int = 0
    worst: Overflow | None = None

    def add(self, one: Overflow) -> None:
        self.cells += 1
        if self.worst is None or (one.required, -one.allocated) > (self.worst.required, -self.worst.allocated):
            self.worst = one

    def __str__(self) -> str:
        if self.worst is None:
            return ""
        words = f"{self.worst.required:,} / {self.worst.allocated:,} ({self.worst.how})"
        return f"{words}, {count(self.cells, 'cell')}"


def _buffers(found: Comparison) -> Iterator[str]:
    """The table of before and after: what each buffer needs and has at worst."""
    seen: dict[tuple[str, str], tuple[_Seen, _Seen]] = defaultdict(lambda: (_Seen(), _Seen()))
    hidden: Counter[tuple[str, str]] = Counter()
    for change in found.changes:
        if not (judged(change.before) and judged(change.after)):
            continue
        before, after = ({one.buffer: one for one in _widest(row)} for row in (change.before, change.after))
        load = str(change.axes.get("load", ""))
        for buffer in before.keys() | after.keys():
            for side, of_buffer in zip(seen[buffer, load], (before, after), strict=True):
                if buffer in of_buffer:
                    side.add(of_buffer[buffer])
            hidden[buffer, load] += buffer not in after and bool(change.after and troubles(change.after))
    if not seen:
        return
    yield "### Before and after\n"
    yield "Of each buffer the entries required / allocated, where a case found that it needs most.\n"
    yield "| buffer | load | before | after |"
    yield "| --- | --- | --- | --- |"
    order = sorted(seen.items(), key=lambda item: (-item[1][1].cells, -item[1][0].cells, item[0]))
    for (buffer, load), (first, second) in order[:ROWS]:
        unknown = hidden[buffer, load]
        fits = f"not seen: {count(unknown, 'cell')} with other trouble" if unknown else "fits"
        words = (
            code(buffer, 80, in_table=True),
            code(load, 40, in_table=True),
            str(first) or "fits",
            str(second) or fits,
        )
        yield f"| {' | '.join(words)} |"
    if left := order[ROWS:]:
        yield f"\n… and {count(len(left), 'buffer')} more"
    yield ""


def _widest(row: CellResult | None) -> Iterator[Overflow]:
    """Of each buffer of a cell the overflow that needs most, whichever case found it."""
    worst: dict[str, Overflow] = {}
    if row is not None:
        for one in (*row.overflow, *(one for case in row.cases for one in case.overflow)):
            if one.buffer not in worst or one.required > worst[one.buffer].required:
                worst[one.buffer] = one
    yield from worst.values()


def _not_judged(found: Comparison) -> Iterator[str]:
    """Why some of what was asked for has no answer, and what no answer here is about."""
    ran = [row for change in found.changes for row in sides(change) if judged(row)]
    if elsewhere := sum(row.evidence is not Evidence.DEVICE for row in ran):
        yield f"kernels on a GPU: {elsewhere:,} of {count(len(ran), 'result')} were obtained without one"
    reasons = Counter(one_line(public(row.reason), 200) for change in found.unjudged for row in sides(change)[-1:])
    for reason, cells in reasons.most_common(REASONS):
        yield f"{count(cells, 'cell')} not judged: {code(reason) or 'no reason given'}"
    if len(reasons) > REASONS:
        yield f"and cells for {count(len(reasons) - REASONS, 'other reason')}"


def _section(start: str, groups: Sequence[Alike], axes: Domain, left: int) -> tuple[str, int]:
    """As many groups as there is room for, and the room that is left."""
    parts = [start]
    for number, group in enumerate(groups):
        part = f"\n#### {code(public(headline(group)))}\n\n" + "".join(
            text for one in fields(group, axes) for text in field_text(_of_all(one, group))
        )
        left -= len(part.encode())
        if left < 0:
            rest = groups[number:]
            cells, worse = sum(len(one.changes) for one in rest), sum(len(one.changes) for one in rest if one.worse)
            parts.append(
                f"\n… and {count(len(rest), 'group')} left out to keep this short: {count(cells, 'cell')}, "
                f"of which {worse:,} got worse. `runner compare` shows them.\n"
            )
            break
        parts.append(part)
    return "".join(parts), left


def _of_all(one: Field, group: Alike) -> Field:
    """The field as it is on every machine: in the place of a command with the paths of this one stands the cell."""
    if one.name == "repro":
        return Field("one of them", [sides(group.changes[0])[-1].id])
    return one


def _again(found: Comparison, setting: Setting) -> Iterator[str]:
    """The two lines that show it elsewhere, and what must be at hand there."""
    rows = [row for change in (*found.changes, *found.unjudged) for row in sides(change)]
    candidates = {
        str(row.axes.get("vllm", "")): one for row in rows if (one := recorded(row.environment.get("candidate", "")))
    }
    values = _values(found)
    command = ["runner"]
    for name, candidate in candidates.items():
        command += ["--candidate", f"{name}={file_name(candidate)}@{candidate.over}"]
    for axis, some in values.items():
        taken = tuple(setting.taken.get(axis, ()))
        if axis == found.along or set(map(str, some)) != set(map(str, taken)):
            command += ["--filter", ",".join(f"{axis}={value}" for value in some)]
    if not any(row.evidence is Evidence.DEVICE for row in rows):
        command += ["--evidence", "emulated"]
    command += setting.options
    if found.along:
        along = [] if found.along == "vllm" else ["--along", found.along]
        second = ["runner", "compare", *found.sides, *along, "--in", "runs/latest", "--markdown"]
    else:
        command += ["--out", "runs/again"]
        second = ["runner", "compare", "runs/before", "runs/again", "--markdown"]
    yield "### To repeat it\n"
    yield block(["$ " + _line(command), "$ " + _line(second)])
    for candidate in candidates.values():
        name = code(file_name(candidate))
        match candidate.kind:
            case CandidateKind.CHECKOUT:
                yield f"{name} is the checkout; the first lines of the run name its digest: {code(candidate.digest)}.\n"
            case _:
                yield f"{name} is the {candidate.kind} whose `sha256sum` begins with {code(candidate.digest)}.\n"


def _line(words: Sequence[str]) -> str:
    return one_line(public(shlex.join(words)), 4000)


def _values(found: Comparison) -> dict[str, list[object]]:
    """Every axis with the values that were compared, in their order; of the one that differs those of both sides."""
    values: dict[str, dict[object, None]] = {}
    if found.along:
        values[found.along] = dict.fromkeys(found.sides)
    every: Sequence[Change] = (*found.changes, *found.unjudged)
    for change in every:
        for axis, value in change.axes.items():
            values.setdefault(axis, {})[value] = None
    return {axis: list(some) for axis, some in values.items()}
