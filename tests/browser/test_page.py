"""What a reader does with the page: look, filter, pivot, open a cell, by mouse and by keyboard alone, print."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from runner.model import Batch, How, Overflow, State, Verdict
from runner.reports import heatmap
from runner.reports.html import Earlier
from tests.browser import made
from tests.unit import synthetic

ROWS = made.rows()
SHOWN = "#maps td.cell:visible"
SOLO = "0.32.0-flashinfer-sm100-hybrid_on-k0-c64-solo"


SETTLED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"


def settle(page: Page) -> None:
    """The map follows a key with the next frame, and what is out of sight with the one after it."""
    page.evaluate(SETTLED)


def shown(page: Page) -> Locator:
    settle(page)
    return page.locator(SHOWN)


def cell(page: Page, id_: str = SOLO):
    return page.locator(f'#maps td[aria-label^="{id_}:"]')


def count(page: Page) -> str:
    settle(page)
    return page.locator("#count").inner_text()


def focused(page: Page) -> str:
    """The id of the cell that the keyboard is on; empty where it is on something else."""
    return (page.evaluate("document.activeElement.getAttribute('aria-label')") or "").split(":")[0]


def test_every_cell_of_the_run_is_there_with_glyph_verdict_and_evidence(show) -> None:
    page = show(ROWS)
    page.locator("#everything").click()
    labels = dict(
        page.locator("#maps td.cell").evaluate_all(
            "all => all.map((td) => [td.getAttribute('aria-label'), td.textContent])"
        )
    )
    assert len(labels) == made.CELLS
    for row in ROWS:
        state = "" if row.state.value == row.verdict.value else f" ({row.state})"
        ran = row.state not in {"unsupported", "skipped", "not_run", "infra"}
        label = f"{row.id}: {row.verdict}{state}, {row.evidence if ran else 'no evidence'}"
        assert labels[label] == heatmap.GLYPHS[row.verdict]


def test_totals_add_up_and_filter(show) -> None:
    page = show(ROWS)
    numbers = [int(text) for text in page.locator(".total > b").all_text_contents()]
    assert sum(numbers) == made.CELLS
    expect(page.locator(".planned")).to_have_text(f"{made.CELLS} cells =")
    overflows = sum(row.verdict is Verdict.OVERFLOW for row in ROWS)
    page.locator("[data-verdict=overflow]").click()
    assert count(page) == f"{overflows} of {made.CELLS} cells: {overflows} overflow"
    assert shown(page).count() == overflows
    page.locator("[data-verdict=overflow]").click()
    assert count(page) == f"{made.CELLS} cells"


def test_a_filter_shows_its_cells_and_says_how_many(show) -> None:
    page = show(ROWS)
    page.locator("#filter").fill("flashinfer,sm100 spec_k>=3; load=small")
    # flashinfer on sm100, k 3, small: two of hybrid times two of chunk
    assert count(page).startswith(f"4 of {made.CELLS} cells")
    assert shown(page).count() == 4
    labels = shown(page).evaluate_all("all => all.map((td) => td.getAttribute('aria-label'))")
    assert all("-flashinfer-sm100-" in label and "-k3-" in label and "-small:" in label for label in labels)
    page.locator("#filter").fill("sm89")
    assert shown(page).count() == 4  # what was asked for before
    expect(page.locator("#filter-error")).to_contain_text(
        "no cell of this run has the label “sm89”, did you mean “sm90”?"
    )
    page.locator("#clear").click()
    assert count(page) == f"{made.CELLS} cells"
    expect(page.locator("#filter-error")).to_be_hidden()


def test_a_filter_that_leaves_nothing_says_so(show) -> None:
    page = show(ROWS)
    page.locator("#filter").fill("sm90; sm100")
    assert count(page) == f"none of {made.CELLS} cells"
    assert shown(page).count() == 0


def test_axes_can_be_pivoted(show) -> None:
    page = show(ROWS)
    before = page.locator("#maps td.cell").count()
    assert page.locator("figcaption").all_text_contents() == ["vllm 0.32.0, load solo", "vllm 0.32.0, load small"]
    page.get_by_label("load: rows, columns or maps").select_option("columns")
    assert page.locator("figcaption").all_text_contents() == ["vllm 0.32.0"]
    page.get_by_label("backend: rows, columns or maps").select_option("maps")
    assert page.locator("figcaption").all_text_contents() == [
        f"vllm 0.32.0, backend {backend}" for backend in made.AXES["backend"]
    ]
    heads = page.locator("table.map").first.locator("tbody th").all_text_contents()
    assert heads == ["sm90", "sm100"]  # on cpu nothing of flashinfer is supported
    assert page.locator("#maps td.cell").count() == before
    page.locator("#swap").click()
    assert page.locator("table.map").first.locator("thead tr").last.locator("th").all_text_contents()[1:] == [
        "sm90",
        "sm100",
        "cpu",
    ]
    page.get_by_label("spec_k: further out").click()
    assert page.locator(".lane").first.locator(".axis-choice > span").all_text_contents() == [
        "chunk",
        "spec_k",
        "hybrid",
        "load",
    ]
    page.locator("#reset").click()
    assert len(page.locator("figcaption").all_text_contents()) == 2


def test_a_pivot_keeps_the_filter(show) -> None:
    page = show(ROWS)
    page.locator("#filter").fill("sm100,flashinfer,k3")
    found = shown(page).count()
    assert found == 8
    page.locator("#swap").click()
    assert shown(page).count() == found


def test_a_cell_tells_its_story(show) -> None:
    row = replace(
        synthetic.cell(
            State.OVERFLOW,
            synthetic.overflowed(),
            axes={"backend": "flashinfer", "arch": "sm90"},
        ),
        verdict=Verdict.XFAIL,
        known=synthetic.ISSUE,
        resolved={"decode_kernel": "xqa", "block_size": 16},
    )
    page = show([row])
    cell(page, row.id).click()
    story = page.locator("#story")
    expect(story.locator("h2")).to_have_text(row.id)
    text = story.inner_text()
    for part in ("xfail", "emulated", "state overflow", row.repro, synthetic.RAISED, synthetic.INDPTR, "xqa", "16"):
        assert part in text, part
    assert "2.13.0+cpu" in text
    assert "2026-11-29T15:04:00+00:00" in text
    expect(story.get_by_role("link")).to_have_attribute("href", synthetic.ISSUE)


def test_the_story_of_a_known_issue_says_what_else_was_judged(show) -> None:
    cases = [synthetic.overflowed("test_a"), synthetic.overflowed(cause=synthetic.cause())]
    row = synthetic.cell(State.OVERFLOW, *cases, synthetic.cell().cases[0], known=synthetic.ISSUE)
    page = show([replace(row, verdict=Verdict.XFAIL)])
    cell(page, row.id).click()
    said = "the known issue explains 1 of 3 cases; 1 passed; 1 could not judge: test_a"
    expect(page.locator("#story .behind")).to_have_text(said)
    told = page.locator("#story .case")
    assert told.locator(".name").all_text_contents() == [synthetic.INDPTR, "test_a", synthetic.VIRTUAL]
    expect(told.nth(0).locator(".raised")).to_have_text(
        "raised AssertionError at vllm/v1/attention/backends/flashinfer.py:812 in build: no room for 5 rows"
    )
    expect(told.nth(0)).to_have_attribute("open", "")
    expect(told.nth(1)).not_to_have_attribute("open", "")
    expect(told.nth(1)).to_contain_text("ended at the same, judged nothing else")
    expect(page.locator(".summary")).to_contain_text("1 xfail: behind them 1 of 3 cases were not judged")


def test_a_refusal_that_nobody_expects_is_red_and_an_expected_one_says_why(show) -> None:
    row = synthetic.cell(State.REFUSED, synthetic.failed(state=State.REFUSED), reason="no kernel")
    good = synthetic.cell(State.REFUSED, axes={"spec_k": 1}, reason="many", expected="at most 5 tokens")
    bad = replace(row, verdict=Verdict.UNEXPECTED)
    page = show([bad, good, synthetic.cell(State.FAIL, axes={"spec_k": 2})])
    colour = "element => getComputedStyle(element).backgroundColor"
    red, blue, fail = (page.locator(f"td.cell[aria-label*='-k{k}-']").evaluate(colour) for k in (0, 1, 2))
    assert red == fail != blue
    expect(page.locator(".group h4").nth(0)).to_contain_text("R refused! at flashinfer.py:812")
    page.locator("[data-verdict='refused!']").click()
    assert shown(page).count() == 1
    cell(page, bad.id).click()
    expect(page.locator("#story")).to_contain_text("not expected")
    expect(page.locator("#story .raised")).to_contain_text("flashinfer.py:812 in build")
    page.locator("[data-verdict='refused!']").click()
    cell(page, good.id).click()
    expect(page.locator("#story")).to_contain_text("at most 5 tokens")


def test_an_overflow_is_drawn_row_by_row_against_the_entries(show) -> None:
    # Three requests of 2 tokens at 63 and 64 touch two chunks of 64 each: 6 rows. An entry for each and one for the
    # end are 7, and there are 5: the sixth row and the end have none.
    batch = Batch(query_lens=(2, 2, 2), seq_lens=(65, 65, 65))
    found = Overflow(buffer="paged_kv_indptr", required=7, allocated=5, how=How.RAISED, batch=batch)
    page = show([synthetic.cell(State.OVERFLOW, synthetic.overflowed(synthetic.INDPTR, found))])
    page.locator("td.cell").click()
    picture = page.locator("#story svg.batch")
    assert picture.locator(".entry").count() == 7
    assert picture.locator(".entry.none").count() == 2
    assert picture.locator(".query.lost").count() == 1
    assert [t for t in picture.locator("text").all_text_contents() if t.startswith("request ")] == [
        f"request {number}" for number in (0, 0, 1, 1, 2, 2)
    ]
    expect(picture).to_have_attribute(
        "aria-label", re.compile("3 requests with 6 query tokens, cut at every 64 positions, make 6 rows")
    )
    strip = picture.locator(".strip rect").evaluate_all("all => all.map((one) => Number(one.getAttribute('width')))")
    assert strip[0] / sum(strip) == pytest.approx(5 / 7)


def test_a_batch_that_no_scheduler_forms_is_not_drawn(show) -> None:
    batch = Batch(query_lens=(9,), seq_lens=(3,))
    found = Overflow(buffer="b", required=7, allocated=0, how=How.RAISED, batch=batch)
    page = show([synthetic.cell(State.OVERFLOW, synthetic.overflowed(synthetic.INDPTR, found))])
    page.locator("td.cell").click()
    expect(page.locator("#story")).to_contain_text("none that a scheduler forms")


def test_an_arrow_finds_the_map_by_itself(show) -> None:
    page = show(ROWS)
    page.keyboard.press("ArrowDown")
    assert focused(page) == ROWS[0].id


def test_the_keyboard_alone_does_everything(show) -> None:
    page = show(ROWS)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.type("load=solo,flashinfer,sm90,sm100")
    assert shown(page).count() == 16
    first = "0.32.0-flashinfer-sm90-hybrid_on-k0-c64-solo"
    for _ in range(40):
        page.keyboard.press("Tab")
        if focused(page) == first:
            break
    assert focused(page) == first
    page.keyboard.press("ArrowRight")
    assert focused(page) == first.replace("k0", "k3")
    page.keyboard.press("ArrowDown")
    assert focused(page) == first.replace("k0", "k3").replace("sm90", "sm100")
    page.keyboard.press("ArrowDown")  # the last row that is shown
    assert focused(page) == first.replace("k0", "k3").replace("sm90", "sm100")
    page.keyboard.press("End")
    assert focused(page) == "0.32.0-flashinfer-sm100-hybrid_off-k3-c8192-solo"
    page.keyboard.press("Control+Home")
    assert focused(page) == first
    page.keyboard.press("Enter")
    expect(page.locator("#story-title")).to_have_text(first)
    page.keyboard.press("ArrowRight")
    expect(page.locator("#story-title")).to_have_text(first.replace("k0", "k3"))
    page.keyboard.press("Escape")
    expect(page.locator("#story")).to_be_hidden()
    assert focused(page) == first.replace("k0", "k3")
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    assert count(page) == f"{made.CELLS} cells"


def test_where_the_keyboard_is_can_be_seen(show) -> None:
    page = show(ROWS)
    page.keyboard.press("/")
    for _ in range(30):
        page.keyboard.press("Tab")
        style = page.evaluate(
            "(() => { const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]; })()"
        )
        assert style[0] == "solid"
        assert float(style[1].removesuffix("px")) >= 2


def test_what_the_pointer_is_on_is_said(show) -> None:
    page = show(ROWS)
    cell(page).hover()
    expect(page.locator("#tip")).to_contain_text(f"{SOLO}overflow · emulated")
    page.mouse.move(5, 5)
    expect(page.locator("#tip")).to_be_hidden()


def test_a_group_of_failures_filters_the_map(show) -> None:
    page = show(ROWS)
    button = page.locator(".pick[data-group]").filter(has_text="cum_seq_lens_kv")
    number = int(re.search(r"(\d+) cells", button.inner_text())[1])
    assert number == sum(any(o.buffer == "cum_seq_lens_kv" for o in row.overflow) for row in ROWS)
    button.click()
    assert shown(page).count() == number
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".chip")).to_contain_text("cum_seq_lens_kv")
    page.locator(".chip").click()
    assert count(page) == f"{made.CELLS} cells"


def test_a_buffer_filters_the_map(show) -> None:
    page = show(ROWS)
    page.get_by_role("button", name="draft_mask", exact=True).click()
    assert shown(page).count() == sum(any(o.buffer == "draft_mask" for o in row.overflow) for row in ROWS)


def test_what_is_looked_at_is_in_the_address(show) -> None:
    page = show(ROWS)
    page.locator("#filter").fill("sm100")
    count(page)
    cell(page).click()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#story-title")).to_have_text(SOLO)
    assert page.locator("#filter").input_value() == "sm100"


def test_the_repro_command_is_copied(show) -> None:
    page = show(ROWS)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    cell(page).click()
    page.locator(".copy").click()
    expect(page.locator(".copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == f"runner repro {SOLO}"


def test_dark_and_light(show) -> None:
    page = show(ROWS)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.keyboard.press("d")
    dark = page.evaluate(ground)
    assert light != dark
    for _ in range(20):
        page.reload()
        if page.evaluate(ground) == dark:
            break
        page.wait_for_timeout(100)  # Chromium writes its storage when it has the time
    assert page.evaluate(ground) == dark  # it is kept
    page.locator("#theme").click()
    assert page.evaluate(ground) == light


def test_a_system_that_is_dark_gets_a_dark_page(show, page: Page) -> None:
    light = show(ROWS).evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_in_print_there_are_glyphs_and_no_controls(show) -> None:
    page = show(ROWS)
    glyphs = Counter(page.locator("td.cell").all_text_contents())
    page.emulate_media(media="print")
    for hidden in ("#filter", "#pivot", "#theme", "#help-button", "#everything"):
        expect(page.locator(hidden)).to_be_hidden()
    assert Counter(shown(page).all_text_contents()) == glyphs
    paper = page.pdf(prefer_css_page_size=True)
    # A4 across, in points: 297 mm and 210 mm at 72 to the inch.
    assert re.search(rb"/MediaBox \[0 0 84[12][.\d]* 59[45][.\d]*\]", paper)


@pytest.mark.parametrize("wide", [400, 320])
def test_on_a_narrow_screen_only_the_map_scrolls(show, page: Page, wide: int) -> None:
    page.set_viewport_size({"width": wide, "height": 800})
    show(ROWS, history=[Earlier("20260101T000000Z-aaaa", {Verdict.PASS: 3})])
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) == wide
    cell(page).click()
    assert page.evaluate(width) == wide
    assert page.locator("#story").bounding_box()["width"] == wide


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("state", ["closed", "open", "help", "wrong"])
def test_axe_finds_no_serious_fault(show, page: Page, theme: str, state: str) -> None:
    page.emulate_media(color_scheme=theme)
    show(ROWS, history=[Earlier("20260101T000000Z-aaaa", {Verdict.PASS: 3})])
    match state:
        case "open":
            cell(page).click()
        case "help":
            page.locator("#help-button").click()
        case "wrong":
            page.locator("#filter").fill("nonsense")
    page.wait_for_timeout(50)
    found = Axe().run(page).response["violations"]
    grave = [one for one in found if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in grave] == []


def test_axe_would_find_a_fault(show) -> None:
    page = show(ROWS)
    page.evaluate("document.querySelector('h1').style.color = '#ccc'")
    page.evaluate("const box = document.querySelector('#filter'); box.placeholder = ''; document.body.append(box)")
    found = {one["id"] for one in Axe().run(page).response["violations"] if one["impact"] in {"serious", "critical"}}
    assert {"color-contrast", "label"} <= found


def test_a_run_without_cells_is_a_page_too(show) -> None:
    page = show([])
    expect(page.locator("h1")).to_have_text("No cell was planned.")
    assert count(page) == "0 cells"


def test_earlier_runs_are_drawn_beside_the_totals(show) -> None:
    passed = sum(row.verdict is Verdict.PASS for row in ROWS)
    page = show(
        ROWS,
        history=[
            Earlier("20260101T000000Z-aaaa", {Verdict.PASS: 3}),
            Earlier("20260102T000000Z-bbbb", {Verdict.PASS: 5}),
        ],
    )
    label = page.locator("[data-verdict=pass] svg").get_attribute("aria-label")
    assert label == f"over 3 runs: 3, 5, {passed}"


def test_columns_that_a_filter_leaves_empty_are_gone(show) -> None:
    page = show(ROWS)
    table = page.locator("table.map").first
    wide = table.bounding_box()["width"]
    page.locator("#filter").fill("k3")  # one of two values of k
    count(page)
    narrow = table.bounding_box()["width"]
    # Four columns of 24 pixels and the 2 between two; before three of them is a gap of 8: an outer axis changes there.
    assert wide - narrow == 4 * 26 + 3 * 8
    labels = shown(page).evaluate_all(
        "all => all.filter((td) => td.getBoundingClientRect().width > 20).map((td) => td.getAttribute('aria-label'))"
    )
    assert len(labels) == shown(page).count()
    assert all("-k3-" in label for label in labels)
