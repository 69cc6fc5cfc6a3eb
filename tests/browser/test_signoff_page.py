"""signoff.html in a real Chromium, headless: narrow and wide, light and dark, and with hostile words in every place."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.unit.signoffs import hostile_bundle, run, sign


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A plain NO-GO and one of hostile words."""
    plain, hostile = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("hostile")
    bundles = {"plain": sign(plain, run(plain, "a"))[0], "hostile": hostile_bundle(hostile)}
    return {name: folder / "signoff.html" for name, folder in bundles.items()}


@pytest.fixture(params=["light", "dark"])
def window(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Nothing may be asked for but the file, and nothing may be said or pop up."""
    context = chromium.new_context(color_scheme=request.param)
    opened, trouble = context.new_page(), []
    opened.on("console", lambda message: trouble.append(f"console: {message.text}"))
    opened.on("pageerror", lambda error: trouble.append(f"error: {error}"))
    opened.on("dialog", lambda dialog: (trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    opened.on("request", lambda asked: asked.url.startswith("file:") or trouble.append(f"request: {asked.url}"))
    yield opened
    context.close()
    assert trouble == []


@pytest.mark.parametrize("name", ["plain", "hostile"])
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window_and_axe_finds_no_fault(
    name: str, width: int, window: Page, pages: dict[str, Path]
) -> None:
    window.set_viewport_size({"width": width, "height": 900})
    window.goto(pages[name].as_uri())
    assert window.evaluate("document.documentElement.scrollWidth") <= width
    faults = Axe().run(window).response["violations"]
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in faults] == []


def test_the_decision_is_the_heading_and_the_first_table_is_in_the_first_screen(
    window: Page, pages: dict[str, Path]
) -> None:
    window.set_viewport_size({"width": 1280, "height": 900})
    window.goto(pages["plain"].as_uri())
    assert window.locator("h1").inner_text() == "NO-GO"
    assert window.locator("table").first.bounding_box()["y"] < 600
    assert window.locator("section").last.locator("tbody tr").count() == 7
