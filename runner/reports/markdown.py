"""report.md: what a GitHub job summary shows. Under 1 MiB always, or GitHub would drop the whole of it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from runner.candidates import recorded
from runner.model import Candidate, CandidateKind, CellResult
from runner.outcome import totals
from runner.reports import behind, heatmap, not_judged, patterns, summary
from runner.reports.fields import Field, fields, headline
from runner.reports.grouping import Group, groups
from runner.reports.text import count, one_line, plain, public

LIMIT = 1_000_000
"""Bytes of the whole report; GitHub's limit is 1 MiB."""
MAP_LIMIT = 200_000
GROUPS_LIMIT = 600_000
MAP_WIDTH = 120


CUT = "Some of this is left out to keep the page short; `runner report` shows it.\n"


def render(
    results: Sequence[CellResult], *, exit_code: int, title: str = "", limit: int = LIMIT, links: bool = True
) -> str:
    """The report, most important first; what does not fit is counted or named, not silently dropped.

    Without `links`, no text of a result becomes one.
    """
    groups_limit = limit * GROUPS_LIMIT // LIMIT
    axes = patterns.domain(results)
    found = groups(results)
    unexpected = [group for group in found if not group.expected]
    known = [group for group in found if group.expected]
    unexpected_text = _section("Unexpected", unexpected, axes, brief=False, limit=groups_limit, links=links)
    left = max(0, groups_limit - len(unexpected_text.encode()))
    sections = [
        f"# Attention matrix{': ' + code(title) if title else ''}\n\n**{summary.exit_line(exit_code)}**\n",
        _totals(results) + "".join(f"\n{line}\n" for line in _notes(results)),
        f"{hint}\n" if (hint := summary.known_line(results)) else "",
        _candidates(results) + "".join(f"- {code(line, 1000)}\n" for line in summary.expired_lines(results)),
        unexpected_text,
        _section("Known, and still so", known, axes, brief=True, limit=left, links=links),
        _maps(results, limit * MAP_LIMIT // LIMIT),
        _reasons(results),
    ]
    return _fitting([section for section in sections if section], limit)


def _fitting(sections: Sequence[str], limit: int) -> str:
    """The sections that fit together, and a word where one does not."""
    text = "\n".join(sections)
    if len(text.encode()) <= limit:
        return text
    kept: list[str] = []
    left = limit - len(CUT.encode()) - 1
    for section in sections:
        size = len(section.encode()) + 1
        if size <= left:
            kept.append(section)
            left -= size
    return "\n".join([*kept, CUT]) if limit > len(CUT) else ""


def code(text: str, limit: int = 300, *, in_table: bool = False) -> str:
    """Untrusted text as inline code: no HTML, no links, no mentions, no way out of it or out of a table cell."""
    text = one_line(text, limit)
    if in_table:
        text = text.replace("|", "\\|")
    if not text:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def block(lines: Iterable[str]) -> str:
    """Untrusted lines as a code block with a fence that they cannot close."""
    text = plain("\n".join(lines))
    fence = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def link(text: str) -> str:
    """A link where the text is nothing but web addresses, code where it is anything else."""
    words = text.split()
    if words and all(re.fullmatch(r"https?://[\w.:-]+(/[\w./~%?=&#+-]*)?", word, re.ASCII) for word in words):
        return " ".join(f"<{word}>" for word in words)
    return code(text)


def _notes(results: Sequence[CellResult]) -> list[str]:
    hidden, less = behind.line(results), not_judged.line(results)
    return [*([hidden] if hidden else []), *([code(less)] if less else []), *summary.evidence_lines(results)]


def _totals(results: Sequence[CellResult]) -> str:
    counts = totals(results, planned=len(results))
    rows = "".join(f"| {verdict} | {n:,} |\n" for verdict, n in counts.items())
    return f"| verdict | cells |\n| --- | ---: |\n{rows}| **planned** | **{len(results):,}** |\n"


def _section(name: str, chosen: Sequence[Group], axes: patterns.Domain, *, brief: bool, limit: int, links: bool) -> str:
    if not chosen:
        return ""
    head = f"## {name}: {count(len(chosen), 'group')}\n\n"
    parts, used = [], len(head.encode())
    for number, group in enumerate(chosen):
        part = _group(group, axes, brief=brief, links=links)
        used += len(part.encode()) + 1
        if used > limit:
            parts.append(f"… and {count(len(chosen) - number, 'group')} left out to keep this page short.\n")
            break
        parts.append(part)
    return head + "\n".join(parts)


def _group(group: Group, axes: patterns.Domain, *, brief: bool, links: bool) -> str:
    lines = [f"### {code(headline(group))}\n\n"]
    for field in fields(group, axes, brief=brief):
        lines += field_text(field, links=links)
    return "".join(lines)


def field_text(field: Field, *, links: bool = True) -> Iterator[str]:
    if field.name in {"message", "repro"}:
        yield f"- {field.name}:\n\n" + _indented(block(map(public, field.lines)))
    elif field.name == "known":
        yield f"- known: {(link if links else code)(field.lines[0])}\n"
    else:
        yield f"- {field.name}: " + "; ".join(code(public(line), 1000) for line in field.lines) + "\n"


def candidate_words(candidate: Candidate) -> str:
    """What a candidate is, for who has it elsewhere: the name of its file, and a digest to know it by."""
    kind = "digest" if candidate.kind is CandidateKind.CHECKOUT else "SHA-256 begins with"
    what = f"{candidate.kind} {code(file_name(candidate))}"
    return f"{what} ({kind} {code(candidate.digest)}) over vLLM {code(candidate.over)}"


def file_name(candidate: Candidate) -> str:
    """What the author's file or folder is called, wherever it is."""
    return PurePath(candidate.path).name or candidate.kind


def _candidates(results: Sequence[CellResult]) -> str:
    found = {result.environment.get("candidate", ""): result.axes.get("vllm", "") for result in results}
    named = [(name, one) for words, name in found.items() if (one := recorded(words))]
    return "".join(f"- candidate {code(str(name))}: {candidate_words(one)}\n" for name, one in named)


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def _maps(results: Sequence[CellResult], limit: int) -> str:
    lines: list[str] = []
    drawn = heatmap.blocks(results)
    for found in drawn:
        lines += [heatmap.as_text(line) for line in heatmap.lay_out(found, MAP_WIDTH)]
        lines.append("")
    text = block([*lines, heatmap.as_text(heatmap.legend(drawn))]) if lines else ""
    if len(text.encode()) > limit:
        text = "Left out: it is too large for this page; `runner report` shows it.\n"
    return f"## Heat map\n\n{text}" if text else ""


def _reasons(results: Sequence[CellResult]) -> str:
    rows = [
        f"| {r.verdict} | {r.cells:,} | {code(public(r.text), in_table=True)} |\n"
        for r in summary.reasons(results, limit=20)
    ]
    return "## Not judged\n\n| verdict | cells | reason |\n| --- | ---: | --- |\n" + "".join(rows) if rows else ""
