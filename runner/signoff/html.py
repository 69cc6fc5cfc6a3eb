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
    environment.tests["a_link"] = lambda text: _LINK.fullmatch(text) is not None
    return environment.get_template(TEMPLATE).render(page=page)
