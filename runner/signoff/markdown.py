"""signoff.md: the page for a pull request, a release issue or a job summary. Under 1 MB always."""

from runner.reports.markdown import LIMIT, code, link
from runner.signoff.tables import Item, Page, Section

LONGEST = 600
"""Characters of one line of a table; the HTML page and signoff.json have all of it."""


def render(page: Page) -> str:
    """The page; rows that do not fit are counted, not silently dropped."""
    about = "".join(f"- {name}: {_item(item)}\n" for name, item in page.about)
    text = f"# {page.decision}\n\n**{page.summary}**\n\n{about}"
    for section in page.sections:
        text += "\n" + _section(section, LIMIT - len(text.encode()) - 1000)
    return text


def _section(section: Section, room: int) -> str:
    text = f"## {section.title}\n\n" + "".join(f"{_item(line)}\n\n" for line in section.lines)
    if not section.rows:
        return text.rstrip("\n") + "\n"
    text += f"| {' | '.join(section.columns)} |\n|{' --- |' * len(section.columns)}\n"
    for number, row in enumerate(section.rows):
        line = f"| {' | '.join(map(_item, row))} |\n"
        room -= len(line.encode())
        if room < 0:
            return text + f"\n… and {len(section.rows) - number:,} more rows: signoff.html has all of them.\n"
        text += line
    return text


def _item(item: Item) -> str:
    if item.ours:
        return "<br>".join(item.lines)
    return "<br>".join(_given(line) for line in item.lines if line.strip())


def _given(line: str) -> str:
    linked = link(line) if line.startswith(("http://", "https://")) else ""
    return linked if linked.startswith("<") else code(line, LONGEST, in_table=True)
