"""Text from a process under test does nothing on the page but be shown, whatever it is, in whatever field it stands."""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from runner.model import Batch, CaseResult, Cause, CellResult, How, Overflow, State, Verdict
from runner.reports import html
from runner.reports.html import Earlier
from runner.reports.text import plain
from tests.unit import synthetic

HOSTILE = {
    "image": "<img src=x onerror=alert(1)>",
    "script": "</script><script>alert(1)</script>",
    "comment": "<!--<script>alert(1)",
    "style": "</style><style>*{display:none}</style>",
    "svg": "<svg/onload=alert(1)>",
    "attribute": "\" autofocus onfocus=alert(1) x='",
    "address": "javascript:alert(1)",
    "template": "{{ 7 * 7 }} {% for x in y %} ${alert(1)} [[x]] &lt;i&gt;",
    "bidi": "safe\u202eevil\u2066\u200b",
    "terminal": "\x1b[31mred\x1b]8;;http://example.org\x07link\x00\x9b",
    "lines": "one\u2028two\u2029three\r\nfour\ufeff",
    "prototype": "__proto__",
    "megabyte": "A" * 1_000_000,
    "megabyte of tags": "<b onclick=alert(1)>" * 50_000,
}

SAMPLE = synthetic.cell(
    State.OVERFLOW,
    synthetic.overflowed(cause=synthetic.cause()),
    axes={"backend": "flashinfer"},
    known="https://example.org/1",
    resolved={"decode_kernel": "xqa"},
)


def strings(value: Any, where: tuple = ()) -> Iterator[tuple]:
    """The way to every text in a value, by names of fields, positions and keys; a key itself is `(..., key, None)`."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from strings(getattr(value, field.name), (*where, field.name))
    elif isinstance(value, Mapping):
        for key in value:
            yield (*where, key, None)
            yield from strings(value[key], (*where, key))
    elif isinstance(value, tuple):
        for number, each in enumerate(value):
            yield from strings(each, (*where, number))
    elif type(value) is str:
        yield where


def put(value: Any, where: tuple, text: str) -> Any:
    """The same with this text in one place."""
    if not where:
        return text
    first, *rest = where
    if rest == [None]:
        return {text if key == first else key: each for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return dataclasses.replace(value, **{first: put(getattr(value, first), tuple(rest), text)})
    if isinstance(value, Mapping):
        return {**value, first: put(value[first], tuple(rest), text)}
    return tuple(put(each, tuple(rest), text) if i == first else each for i, each in enumerate(value))


def rows(text: str) -> list[CellResult]:
    """A row for each place, with the text in it; all on one map, so that each has an axis value of its own."""
    made = []
    for number, where in enumerate(where for where in strings(SAMPLE) if where[0] != "axes"):
        row = dataclasses.replace(SAMPLE, id=f"row-{number}", axes={**SAMPLE.axes, "spec_k": number})
        made.append(put(row, where, text))
    last = len(made)
    for axis in (axis for axis, value in SAMPLE.axes.items() if isinstance(value, str)):
        last += 1
        made.append(dataclasses.replace(SAMPLE, id=f"row-{last}", axes={**SAMPLE.axes, "spec_k": last, axis: text}))
    return made


def test_every_text_of_a_row_is_tried() -> None:
    """By the types of the model: a new field is either tried here or makes this fail."""
    places = {where[0] if len(where) == 1 or where[0] in {"axes", "environment", "resolved"} else (where[0], *where[2:])
              for where in strings(SAMPLE) if len(where) != 5}  # fmt: skip
    for owner, prefix in ((CellResult, None), (CaseResult, "cases"), (Overflow, "overflow")):
        for name, kind in typing.get_type_hints(owner).items():
            if kind is str or typing.get_origin(kind) is Mapping:
                assert (name if prefix is None else (prefix, name)) in places, name
    for name, kind in typing.get_type_hints(Cause).items():
        assert kind is int or ("cases", "cause", name) in places, name
    assert set(typing.get_type_hints(Batch).values()) == {tuple[int, ...]}


LOOK = """() => [...document.querySelectorAll("td.cell")].map((cell) => {
  cell.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
  cell.click();
  return document.getElementById("story").innerText;
})"""
TAGS = ("script", "style", "img", "iframe", "object", "b", "i", "form", "svg", "[onclick], [onfocus]", "a")
COUNT = "(tags) => tags.map((tag) => document.querySelectorAll(tag).length)"


def look_at_everything(page: Page) -> list[str]:
    """Points at each cell and opens it; the text of each story."""
    told = page.evaluate(LOOK)
    page.wait_for_timeout(20)  # what an element would load or run
    return told


def elements(page: Page) -> dict[str, int]:
    return dict(zip(TAGS, page.evaluate(COUNT, TAGS), strict=True))


@pytest.fixture
def before(show) -> dict[str, int]:
    """The elements of a page of the same rows with a word in every place."""
    page = show(rows("harmless"), title="harmless", history=[Earlier("harmless", {Verdict.OVERFLOW: 1})])
    look_at_everything(page)
    return elements(page)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_shown_and_does_nothing(show, before: dict[str, int], name: str) -> None:
    text = HOSTILE[name]
    page = show(rows(text), title=text, history=[Earlier(text, {Verdict.OVERFLOW: 1})])
    told = look_at_everything(page)
    assert elements(page) == before
    assert len(told) == len(rows(text))
    shown = " ".join(plain(text[:60]).split())[:50]
    assert sum(shown in " ".join(each.split()) for each in told) >= 12
    assert page.evaluate("Object.keys(Object.prototype).length") == 0


@pytest.mark.parametrize("required", [10**400, 7, 0, -3])
@pytest.mark.parametrize("allocated", [10**400, 0, -10])
def test_no_number_breaks_the_page(show, required: int, allocated: int) -> None:
    found = []
    for lens in ((), (1, 2), (10**30,), (0,), (-5,), (2**52,)):
        batch = Batch(query_lens=lens, seq_lens=lens[:1])
        found.append(Overflow(buffer="b", required=required, allocated=allocated, how=How.SHORT, batch=batch))
    case = CaseResult(name="x", state=State.OVERFLOW, duration_s=float("inf"), overflow=tuple(found))
    bad = dataclasses.replace(SAMPLE, cases=(case,), overflow=tuple(found), duration_s=float("nan"))
    rows = [
        dataclasses.replace(bad, id=f"row-{number}", axes={**SAMPLE.axes, "chunk": chunk})
        for number, chunk in enumerate((64, 1, 0, -1, 10**30))
    ]
    page = show(rows)
    assert len(look_at_everything(page)) == len(rows)
    assert page.locator("#story svg.batch").count() == len(found)


def test_a_script_that_got_in_would_not_run(browser: Browser, tmp_path: Path) -> None:
    """The last line of defence: the page's own policy. Not the `page` of the other tests, which takes no complaint."""
    (tmp_path / "report.html").write_text(html.render([SAMPLE], exit_code=1))
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto((tmp_path / "report.html").as_uri())
    page.evaluate("""() => {
      document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = 1" }));
      document.body.append(Object.assign(document.createElement("img"), { src: "http://127.0.0.1:9/x.png" }));
      document.body.insertAdjacentHTML("beforeend", "<b onclick='window.ran = 2' id=planted>x</b>");
      document.getElementById("planted").click();
    }""")
    page.wait_for_timeout(50)
    assert page.evaluate("window.ran") is None
    assert sum("Content Security Policy" in text for text in said) == 3
    page.close()


@pytest.mark.parametrize("name", [name for name in HOSTILE if "megabyte" not in name])
def test_a_hostile_name_of_an_axis_does_nothing(show, name: str) -> None:
    row = dataclasses.replace(SAMPLE, axes={**SAMPLE.axes, HOSTILE[name]: "x"})
    page = show([row, dataclasses.replace(row, id="other", axes={**row.axes, HOSTILE[name]: "y"})])
    assert len(look_at_everything(page)) == 2
    assert page.locator("figcaption").count() == 2


@pytest.mark.parametrize(
    "known", ["javascript:alert(1)", "https://a.example/<b>", "https://a.example x", "data:text/html,x"]
)
def test_only_an_address_is_a_link(show, known: str) -> None:
    page = show([dataclasses.replace(SAMPLE, known=known, verdict=Verdict.XFAIL)])
    page.locator("td.cell").click()
    assert page.locator("a").count() == (2 if known == "https://a.example x" else 0)  # in the group and in the story
    assert known in page.locator("#story").inner_text()
