"""What a sign-off says to people, as plain tables: the Markdown and the HTML page are two ways to write these down."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from runner.model import CellResult
from runner.reports.patterns import domain
from runner.reports.text import count
from runner.signoff import changes, missing, shown
from runner.signoff.inputs import Inputs
from runner.signoff.judge import Gap, Judged, Judgement
from runner.signoff.tables import Page, Section, given, own
from runner.signoff.where import bare


def make(inputs: Inputs, judgement: Judgement) -> Page:
    """The page of a decision."""
    axes = domain([bare(one) for one in judgement.cells])
    request = inputs.request
    sections = [
        _asked(inputs, judgement),
        missing.section(inputs, judgement, axes),
        _waivers(judgement),
        shown.accepted(judgement, axes),
        shown.proven(judgement),
        shown.on_no_gpu(judgement, axes),
        shown.not_judged(judgement, axes),
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
    met, waived, not_shown = _counts(judgement.cells)
    required = count(len(judgement.cells), "required result")
    text = f"Of {required}, {met:,} are shown, {waived:,} are waived and {not_shown:,} are missing"
    found = Counter(name for one in judgement.cells for name in sorted({gap.name for gap in one.open}))
    if not found:
        return f"{text}."
    kinds = ", ".join(
        f"{number:,} {name}" for name, number in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    )
    return f"{text}: {kinds}{' (some for more than one)' if found.total() > not_shown else ''}."


def _counts(cells: Sequence[Judged]) -> tuple[int, int, int]:
    """How many are shown, waived, and neither."""
    met = sum(not one.gaps for one in cells)
    not_shown = sum(bool(one.open) for one in cells)
    return met, len(cells) - met - not_shown, not_shown


def _asked(inputs: Inputs, judgement: Judgement) -> Section:
    rows = []
    for asked in inputs.policy.requirements:
        cells = [one for one in judgement.cells if one.requirement is asked]
        met, waived, not_shown = _counts(cells)
        rows.append(
            (
                given(asked.name, asked.because),
                own(" or ".join(asked.evidence)),
                own(f"{len(cells):,}"),
                own(f"{met:,}"),
                own(f"{waived:,}"),
                own(f"{not_shown:,}"),
            )
        )
    columns = ("requirement", "evidence asked for", "required", "shown", "waived", "missing")
    return Section(title="What is asked for", columns=columns, rows=tuple(rows))


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
    keys = ("recipe_digest", "hashes", "cases_digest", "image_digest", "base_digest")
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
