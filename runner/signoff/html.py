"""signoff.html: the same page for a browser; one file, no script, nothing from elsewhere, readable without colour."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from runner.reports.text import one_line
from runner.signoff.tables import Page

if TYPE_CHECKING:
    import jinja2

TEMPLATE = "page.html.j2"
LONGEST = 2000
_LINK = re.compile(r"https?://[\w.:-]+(/[\w./~%?=&#+-]*)?", re.ASCII)


def render(page: Page) -> str:
    """Jinja2 escapes every value; a control character or a bidirectional override is made visible before."""
    return str(_environment().get_template(TEMPLATE).render(page=page))


@cache
def _environment() -> "jinja2.Environment":
    """One for all pages: it compiles the template once."""
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
    return environment


def _shown(text: str) -> str:
    """A link where the text is a web address and nothing else; anything else harmless, to be escaped."""
    import markupsafe

    if _LINK.fullmatch(text) is None:
        return one_line(text, LONGEST)
    return markupsafe.Markup('<a href="{0}" rel="noreferrer noopener">{0}</a>').format(text)
