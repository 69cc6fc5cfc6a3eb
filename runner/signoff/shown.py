"""What was shown, on which hardware; what no GPU has shown; and what is accepted though it is known to be wrong."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from runner.model import CellResult, Evidence, Verdict
from runner.reports import not_judged as unjudged
from runner.reports.patterns import Domain
from runner.reports.summary import EVIDENCE_MEANING
from runner.signoff import gaps
from runner.signoff.judge import Judged, Judgement
from runner.signoff.tables import Section, given, own
from runner.signoff.where import where


def proven(judgement: Judgement) -> Section:
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


def on_no_gpu(judgement: Judgement, axes: Domain) -> Section:
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
            given(*where(cells, axes)),
        )
        for (name, kinds, says), cells in groups.items()
    )
    lines = () if rows else (own("Every result there is of a GPU arch was obtained on a GPU."),)
    columns = ("requirement", "evidence", "cells", "is it enough", "where")
    return Section(title="What no GPU has shown", lines=lines, columns=columns if rows else (), rows=rows)


def not_judged(judgement: Judgement, axes: Domain) -> Section | None:
    """What the cases could not judge in the release: a cell that is shown was not judged by these kinds."""
    groups: dict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    for one in judgement.cells:
        for kind, because in {pair for a in one.counting for pair in unjudged.kinds(a.row).items()}:
            groups[one.requirement.name, kind, because].append(one)
    rows = tuple(
        (given(name), given(kind), given(because), own(f"{len(cells):,}"), given(*where(cells, axes)))
        for (name, kind, because), cells in sorted(groups.items(), key=lambda item: item[0])
    )
    columns = ("requirement", "kind of case", "in this release", "cells", "where")
    return Section(title="What the cases do not judge in this release", columns=columns, rows=rows) if rows else None


def accepted(judgement: Judgement, axes: Domain) -> Section | None:
    """The known issues that the policy itself accepts: shown, and not without a fault."""
    groups: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for one in judgement.cells:
        known = {a.row.known or a.row.reason for a in one.counting if a.row.verdict in {Verdict.XFAIL, Verdict.FLAKY}}
        if known and not one.gaps:
            groups[one.requirement.name, " ".join(sorted(known))].append(one)
    rows = tuple(
        (given(name), given(known), own(f"{len(cells):,}"), given(*where(cells, axes)))
        for (name, known), cells in groups.items()
    )
    columns = ("requirement", "known issue", "cells", "where")
    return Section(title="Known issues that the policy accepts", columns=columns, rows=rows) if rows else None
