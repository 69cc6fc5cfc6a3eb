"""What a sign-off says to people, as plain tables: the Markdown and the HTML page are two ways to write these down."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from runner.model import CellResult, Evidence, Fault, State, Verdict
from runner.reports.patterns import Domain, compact, domain
from runner.reports.summary import EVIDENCE_MEANING
from runner.reports.text import count
from runner.signoff import changes, gaps
from runner.signoff.inputs import Inputs
from runner.signoff.judge import Gap, Judged, Judgement
from runner.signoff.tables import Page, Section, given, own

GROUPS = 40
"""Rows of the table of what is missing; what is beyond is counted."""
PATTERNS = 6
DETAILS = 4
"""Ways in which one known issue shows."""


def make(inputs: Inputs, judgement: Judgement) -> Page:
    """The page of a decision."""
    every = domain([_bare(one) for one in judgement.cells])
    axes = {axis: values for axis, values in every.items() if len(values) > 1}  # the others tell no cells apart
    request = inputs.request
    sections = [
        _asked(inputs, judgement),
        _missing(inputs, judgement, axes),
        _proven(judgement),
        _less_than_device(judgement, axes),
        _waivers(judgement),
        _accepted(judgement, axes),
        changes.section(inputs) if inputs.since else None,
        _runs(inputs),
        _table(judgement),
    ]
    return Page(
        decision=judgement.decision.value,
        about=(
            ("vLLM", given(request.vllm)),
            ("policy", given(request.policy, inputs.policy.about)),
            ("as of", own(f"{request.at:%Y-%m-%d %H:%M:%S} UTC")),
            *((("runs", given(request.url)),) if request.url else ()),
        ),
        summary=_summary(judgement),
        sections=tuple(section for section in sections if section),
    )


def _summary(judgement: Judgement) -> str:
    shown, waived, not_shown = _counts(judgement.cells)
    required = count(len(judgement.cells), "required result")
    text = f"Of {required}, {shown:,} are shown, {waived:,} are waived and {not_shown:,} are missing"
    found = Counter(name for one in judgement.cells for name in sorted({gap.name for gap in one.open}))
    if not found:
        return f"{text}."
    kinds = ", ".join(
        f"{number:,} {name}" for name, number in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    )
    return f"{text}: {kinds}{' (some for more than one)' if found.total() > not_shown else ''}."


def _counts(cells: Sequence[Judged]) -> tuple[int, int, int]:
    """How many are shown, waived, and neither."""
    shown = sum(not one.gaps for one in cells)
    not_shown = sum(bool(one.open) for one in cells)
    return shown, len(cells) - shown - not_shown, not_shown


def _asked(inputs: Inputs, judgement: Judgement) -> Section:
    rows = []
    for asked in inputs.policy.requirements:
        cells = [one for one in judgement.cells if one.requirement is asked]
        shown, waived, not_shown = _counts(cells)
        rows.append(
            (
                given(asked.name, asked.because),
                own(" or ".join(asked.evidence)),
                own(f"{len(cells):,}"),
                own(f"{shown:,}"),
                own(f"{waived:,}"),
                own(f"{not_shown:,}"),
            )
        )
    columns = ("requirement", "evidence asked for", "required", "shown", "waived", "missing")
    return Section(title="What is asked for", columns=columns, rows=tuple(rows))


def _missing(inputs: Inputs, judgement: Judgement, axes: Domain) -> Section | None:
    groups: dict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    details: dict[tuple[str, str, str], dict[str, None]] = defaultdict(dict)
    for one in judgement.cells:
        for gap in one.open:
            key = one.requirement.name, gap.name, gap.issue or gap.detail
            groups[key].append(one)
            details[key] |= {gap.detail: None} if gap.issue else {}
    if not groups:
        return None
    largest = sorted(groups.items(), key=lambda item: (_urgency(item[0][1]), -len(item[1])))
    rows = [
        (
            given(name),
            own(gap, gaps.MEANING.get(gap, "not accepted")),
            given(found, *list(details[name, gap, found])[:DETAILS]),
            own(f"{len(cells):,}"),
            given(*compact([_bare(one) for one in cells], axes, limit=PATTERNS)),
            given(_remedy(inputs, cells, gap)),
        )
        for (name, gap, found), cells in largest[:GROUPS]
    ]
    left_out = (
        (own(f"{len(groups) - GROUPS:,} smaller groups are in the table below."),) if len(groups) > GROUPS else ()
    )
    columns = ("requirement", "gap", "found", "cells", "where", "what to do")
    return Section(title="What is missing", lines=left_out, columns=columns, rows=tuple(rows))


def _urgency(gap: str) -> int:
    """What is broken before what was not shown, and that before what is known."""
    if gap in gaps.MEANING:
        return 1
    return 0 if Verdict(gap).fault is not Fault.NONE else 2


def _remedy(inputs: Inputs, cells: Sequence[Judged], gap: str) -> str:
    """The command that obtains what is missing, or for a verdict what else there is to do."""
    if gap not in gaps.MEANING:
        repro = next((a.row.repro for one in cells for a in one.attempts if a.row.verdict == gap and a.row.repro), "")
        return f"fix it, or let an approver waive it: {repro}"
    asked = cells[0].requirement
    archs = ",".join(dict.fromkeys(str(one.cell.axes["arch"]) for one in cells))
    all_archs = ",".join(dict.fromkeys(str(cell.axes["arch"]) for cell in asked.cells))
    words = [f"vllm={inputs.request.vllm}", *asked.filters, *([archs] if archs != all_archs else [])]
    tier = f" --tier {shlex.quote(asked.tier)}" if asked.tier else ""
    where = f"with a GPU of {archs}: " if asked.evidence == (Evidence.DEVICE,) else ""
    return f"{where}runner{tier} " + " ".join(f"--filter {shlex.quote(word)}" for word in words)


def _proven(judgement: Judgement) -> Section:
    found: dict[tuple[Evidence, str, str], list[Judged]] = defaultdict(list)
    for one in judgement.cells:
        if one.gaps:
            continue
        for evidence, hardware in dict.fromkeys((a.row.evidence, _hardware(a.row)) for a in one.counting):
            found[evidence, str(one.cell.axes["arch"]), hardware].append(one)
    order = list(Evidence)
    rows = [
        (
            own(evidence.value, EVIDENCE_MEANING[evidence]),
            given(arch),
            given(hardware),
            own(f"{len(cells):,}"),
            own(*_verdicts(cells)),
        )
        for (evidence, arch, hardware), cells in sorted(found.items(), key=lambda item: order.index(item[0][0]))
    ]
    on_device = sum(Evidence.DEVICE in one.evidence for one in judgement.cells if not one.gaps)
    line = f"{on_device:,} of the results shown were obtained on a GPU." if on_device else "Nothing was shown on a GPU."
    columns = ("evidence", "arch", "hardware", "shown", "verdicts")
    return Section(title="What is proven, and on which hardware", lines=(own(line),), columns=columns, rows=tuple(rows))


def _hardware(row: CellResult) -> str:
    gpu, driver = row.environment.get("gpu", ""), row.environment.get("driver", "")
    return (f"{gpu}, driver {driver}" if driver else gpu) if row.evidence is Evidence.DEVICE else "no GPU"


def _verdicts(cells: Iterable[Judged]) -> Iterator[str]:
    found: dict[Verdict, set[str]] = defaultdict(set)
    for one in cells:
        for attempt in one.counting:
            found[attempt.row.verdict].add(one.cell.id)
    return (f"{len(found[verdict]):,} {verdict}" for verdict in Verdict if verdict in found)


def _less_than_device(judgement: Judgement, axes: Domain) -> Section:
    """What no GPU has shown, with whether the policy is content with that."""
    groups: dict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    for one in judgement.cells:
        kinds = {attempt.row.evidence for attempt in one.attempts if attempt.gap != gaps.ABSENT}
        if not kinds or Evidence.DEVICE in kinds or one.cell.axes["arch"] == "cpu":
            continue
        enough = bool(kinds & set(one.requirement.evidence))
        says = (
            "enough for the policy" if enough else f"not enough: {' or '.join(one.requirement.evidence)} is asked for"
        )
        groups[one.requirement.name, ", ".join(e for e in Evidence if e in kinds), says].append(one)
    rows = tuple(
        (
            given(name),
            own(kinds),
            own(f"{len(cells):,}"),
            own(says),
            given(*compact([_bare(one) for one in cells], axes, limit=PATTERNS)),
        )
        for (name, kinds, says), cells in groups.items()
    )
    lines = () if rows else (own("Every result there is of a GPU arch was obtained on a GPU."),)
    columns = ("requirement", "evidence", "cells", "is it enough", "where")
    return Section(title="What no GPU has shown", lines=lines, columns=columns if rows else (), rows=rows)


def _waivers(judgement: Judgement) -> Section:
    rows = tuple(
        (
            given(str(one.waiver.area), ", ".join(one.waiver.what)),
            own(f"{one.covers:,}"),
            given(one.waiver.who),
            own(one.waiver.until.isoformat()),
            given(one.waiver.because),
            given(one.waiver.issue),
            given(*(f"does not count: {reason}" for reason in one.refused)) if one.refused else own("counts"),
        )
        for one in judgement.waivers
    )
    columns = ("waived", "gaps covered", "by", "until", "because", "issue", "standing")
    lines = () if rows else (own("Nothing is waived."),)
    return Section(title="What is waived, by whom, until when", lines=lines, columns=columns if rows else (), rows=rows)


def _accepted(judgement: Judgement, axes: Domain) -> Section | None:
    """The known issues that the policy itself accepts: shown, and not without a fault."""
    groups: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for one in judgement.cells:
        known = {a.row.known or a.row.reason for a in one.counting if a.row.verdict in {Verdict.XFAIL, Verdict.FLAKY}}
        if known and not one.gaps:
            groups[one.requirement.name, " ".join(sorted(known))].append(one)
    rows = tuple(
        (given(name), given(known), own(f"{len(cells):,}"), given(*_where(cells, axes)))
        for (name, known), cells in groups.items()
    )
    columns = ("requirement", "known issue", "cells", "where")
    return Section(title="Known issues that the policy accepts", columns=columns, rows=rows) if rows else None


def _where(cells: Sequence[Judged], axes: Domain) -> list[str]:
    return compact([_bare(one) for one in cells], axes, limit=PATTERNS)


def _runs(inputs: Inputs) -> Section:
    rows = []
    for run in inputs.runs:
        ended = sorted(row.ended_at for row in run.rows.values() if row.ended_at)
        machines = sorted({row.environment.get("machine", "") for row in run.rows.values()} - {""})
        when = (ended[0], ended[-1]) if ended else ("no result",)
        rows.append(
            (given(run.id), given(*when), given(*machines), given(*_digests(run.rows.values())), given(run.digest))
        )
    return Section(
        title="What it rests on",
        columns=("run", "first and last result", "machines", "environments", "SHA-256 of results.json"),
        rows=tuple(rows),
    )


def _digests(rows: Iterable[CellResult]) -> Iterator[str]:
    keys = ("recipe_digest", "cases_digest", "image_digest")
    found = {(row.evidence, key, row.environment.get(key, "")) for row in rows for key in keys}
    return (f"{evidence} {key} {value}" for evidence, key, value in sorted(found) if value)


def _table(judgement: Judgement) -> Section:
    rows = tuple(
        (
            given(one.requirement.name),
            given(one.cell.id),
            own(*dict.fromkeys(f"{a.row.verdict}, {a.row.evidence}" for a in one.attempts)),
            own(str(len(one.counting))),
            given(*(_standing(gap) for gap in one.gaps)) if one.gaps else own("shown"),
        )
        for one in judgement.cells
    )
    columns = ("requirement", "cell", "results", "that count", "standing")
    return Section(title="Every required cell", columns=columns, rows=rows)


def _standing(gap: Gap) -> str:
    by = f", waived by {gap.waiver.who} until {gap.waiver.until}" if gap.waiver else ""
    return f"{gap.name}: {gap.detail}{f' ({gap.issue})' if gap.issue else ''}{by}"


def _bare(one: Judged) -> CellResult:
    """A cell as the patterns want it, which look at its axes alone."""
    return CellResult(
        id=one.cell.id,
        axes=one.cell.axes,
        state=State.NOT_RUN,
        verdict=Verdict.NOT_RUN,
        evidence=Evidence.EMULATED,
    )
