"""signoff.html: the same page for a browser; one file, no script, nothing from elsewhere, readable without colour."""

import re
from pathlib import Path

from runner.reports.text import one_line
from runner.signoff.tables import Page

TEMPLATE = "page.html.j2"
LONGEST = 2000
_LINK = re.compile(r"https?://[\w.:-]+(/[\w./~%?=&#+-]*)?", re.ASCII)


def render(page: Page) -> str:
    """Jinja2 escapes every value; a control character or a bidirectional override is made visible before."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["harmless"] = lambda text: one_line(text, LONGEST)
    environment.filters["shown"] = _shown
    return environment.get_template(TEMPLATE).render(page=page)


def _shown(text: str) -> str:
    """A link where the text is a web address and nothing else; anything else harmless, to be escaped."""
    import markupsafe

    if _LINK.fullmatch(text) is None:
        return one_line(text, LONGEST)
    return markupsafe.Markup('<a href="{0}" rel="noreferrer noopener">{0}</a>').format(text)
