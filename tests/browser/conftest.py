"""Every test here drives a real Chromium, headless; whatever a page logs, asks for or pops up fails its test."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from runner import outcome
from runner.model import CellResult
from runner.reports import html


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each file of tests: while it is open, this process has an event loop that others must not meet."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium)  # without a sandbox, which root may not have
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A window that is 1,280 by 900; nothing but the file itself may be asked for."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened = context.new_page()
    trouble: list[str] = []
    opened.on("console", lambda message: trouble.append(f"console {message.type}: {message.text}"))
    opened.on("pageerror", lambda error: trouble.append(f"error: {error}"))
    opened.on("dialog", lambda dialog: (trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    opened.on("popup", lambda _: trouble.append("a window was opened"))
    opened.on("request", lambda request: request.url.startswith("file:") or trouble.append(f"request: {request.url}"))
    opened.on("download", lambda download: trouble.append(f"download: {download.url}"))
    yield opened
    context.close()
    assert not trouble


@pytest.fixture
def show(page: Page, tmp_path: Path) -> Callable[..., Page]:
    """Renders rows, as a run would, and opens the file."""

    def _show(rows: Sequence[CellResult], **options) -> Page:
        path = tmp_path / "report.html"
        code = outcome.exit_code(row.verdict for row in rows)
        path.write_text(html.render(rows, exit_code=code, title=options.pop("title", "a run"), **options))
        page.goto(path.as_uri())
        return page

    return _show
