"""The filter box and `--filter` are one language: the script's cells are Python's, over many generated filters."""

import random
from itertools import product

import pytest
from playwright.sync_api import Page

from runner import filters
from runner.axes import COUNTS, PRODUCTS, RELEASES, in_id, label
from runner.errors import RunnerError
from runner.reports.html.page import _HERE

AXES = {
    "vllm": ("0.9.2", "0.31.0", "0.32.0", "fix"),
    "backend": ("flashinfer", "flash_attn"),
    "arch": ("sm80", "sm90", "sm100", "cpu"),
    "hybrid": ("on", "off"),
    "spec_k": (0, 1, 3, 32),
    "chunk": (64, 8192),
    "load": ("solo", "small"),
    "kv_dtype": ("auto", "fp8"),
    "page_size": ("load", 16, 64),
}
CELLS = [dict(zip(AXES, values, strict=True)) for values in product(*AXES.values())][::7]
IDS = ["-".join(label(axis, value) for axis, value in cell.items() if in_id(axis, value)) for cell in CELLS]
OPERATORS = ("=", "==", "!=", "<", "<=", ">", ">=")
NOISE = "abks0189-*?[]!=<>.,_ ^\\|"

EVALUATE = """([texts, axes, archs, ids, cells]) => texts.map((text) => {
  try {
    const filters = splitFilters(text).map((each) => parseFilter(each, axes, archs));
    const allowed = filters.map((filter) => allowedValues(filter, axes));
    return ids.map((_, i) => i).filter((i) => filters.every((filter, f) =>
      cells[i].every((value, axis) => allowed[f][axis][value])
      && (!filter.globs.length || filter.globs.some((glob) => glob.test(ids[i])))));
  } catch (error) {
    if (!(error instanceof FilterError)) throw error;
    return "error";
  }
})"""


def by_python(texts: list[str]) -> list[int] | str:
    """The positions of the cells that pass all of these filters; `error` where one is malformed or names nothing."""
    try:
        parsed = [filters.parse(text, AXES) for text in texts]
    except RunnerError:
        return "error"
    return [
        number
        for number, (id_, cell) in enumerate(zip(IDS, CELLS, strict=True))
        if all(one.matches(id_) and all(one.lets(axis, value) for axis, value in cell.items()) for one in parsed)
    ]


def by_script(page: Page, texts: list[str]) -> list[list[int] | str]:
    page.add_script_tag(content=(_HERE / "js" / "filter.js").read_text())
    axes = [
        {
            "name": axis,
            "values": values,
            "labels": [label(axis, v) for v in values],
            "counts": axis in COUNTS,
            "releases": axis == RELEASES,
        }
        for axis, values in AXES.items()
    ]
    cells = [[AXES[axis].index(value) for axis, value in cell.items()] for cell in CELLS]
    return page.evaluate(EVALUATE, [texts, axes, PRODUCTS, IDS, cells])


def word(draw: random.Random) -> str:
    axis = draw.choice([*AXES, "arch", "spec_k", "chunk"])
    value = draw.choice(AXES[axis])
    named = draw.choice([str(value), label(axis, value), str(value), "*", f"{str(value)[:2]}*", "7"])
    named = draw.choice([named, "0.31", "0.31.0.1", "0.10", "9"]) if axis == RELEASES else named
    space = draw.choice(["", "", " "])
    match draw.choices(range(6), [6, 6, 2, 2, 1, 1])[0]:
        case 0:
            return label(axis, value)
        case 1:
            return f"{axis}{space}{draw.choice(OPERATORS)}{space}{named}"
        case 2:
            return draw.choice([*PRODUCTS, "10.0", "10.0a", "sm_90", "sm90a", "9.0", "12.0f", "SM80", "sm", "1.0"])
        case 3:
            return glob(draw, draw.choice(IDS))
        case 4:
            return draw.choice([axis, "flashinfre", "k", "foo=1", "arch>=3", "spec_k>=x", "=", "chunk=<64", f"{axis}="])
        case _:
            return "".join(draw.choices(NOISE, k=draw.randrange(1, 9)))


def glob(draw: random.Random, id_: str) -> str:
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(id_))
        part = draw.choice(
            ["*", "?", "[a-z0-9]", "[!x]", "[^a]", "[z-a]", "[-a]", "[]a]", "[", "[!]", "[0-9-a]", "[b\\-d]"]
        )
        id_ = id_[:at] + part + id_[at + draw.randrange(9) :]
    return id_


@pytest.fixture(scope="module")
def drawn() -> list[list[str]]:
    draw = random.Random(20260101)
    return [
        [",".join(word(draw) for _ in range(draw.choice([1, 1, 2, 3]))) for _ in range(draw.randrange(1, 3))]
        for _ in range(2500)
    ]


def test_generated_filters_choose_the_cells_that_python_chooses(page: Page, drawn: list[list[str]]) -> None:
    # A semicolon in a word, or a space where it is no part of a comparison, parts filters in the box only.
    # A blank one is no filter there.
    texts = [texts for texts in drawn if all(text.strip() and " " not in tight(text) for text in texts)]
    expected = [by_python(each) for each in texts]
    assert len(texts) > 2000
    assert sum(one == "error" for one in expected) > 300
    assert sum(one != "error" and 0 < len(one) < len(CELLS) for one in expected) > 500
    found = by_script(page, ["; ".join(each) for each in texts])
    assert [(t, f) for t, f, e in zip(texts, found, expected, strict=True) if f != e] == []


def tight(text: str) -> str:
    for operator in (*OPERATORS, ","):
        text = text.replace(f" {operator}", operator).replace(f"{operator} ", operator)
    return text.strip()


def test_a_space_parts_filters_as_a_semicolon_does(page: Page) -> None:
    one, two = by_script(page, ["sm90,sm80 spec_k >= 3", "sm90,sm80;spec_k>=3;"])
    assert one == two == by_python(["sm90,sm80", "spec_k>=3"])
    assert 0 < len(one) < len(CELLS)


def test_nothing_in_the_box_is_no_filter(page: Page) -> None:
    assert by_script(page, ["", "  ", " ; "]) == [list(range(len(CELLS)))] * 3
