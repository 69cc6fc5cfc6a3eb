"""The kinds of case that a cell owes: each is declared by some case, and one that is not there is told."""

import re
from pathlib import Path

import pytest

from cases import owed
from cases.cell import Cell, Load

CASES = Path(__file__).parents[3] / "cases"
LOAD = Load("x", 4, 64, 256, 16, 8, 2, 128, "bfloat16")


def cell(backend: str = "flash_attn", arch: str = "sm90", case: str = "metadata") -> Cell:
    return Cell("x", "0.32.0", backend, arch, True, 0, 64, LOAD, "emulated", case=case)


def declared() -> set[str]:
    return {
        kind for path in CASES.rglob("test_*.py") for kind in re.findall(r'mark\.kind\(\s*"([^"]+)"', path.read_text())
    }


def test_each_kind_that_is_owed_is_declared_by_a_case() -> None:
    assert {one.kind for kinds in owed.OWED.values() for one in kinds} <= declared()


def test_each_case_says_its_kind() -> None:
    for path in CASES.rglob("test_*.py"):
        text = path.read_text()
        assert len(re.findall(r"^def test_", text, re.M)) == len(re.findall(r"mark\.kind\(", text)), path


@pytest.mark.parametrize("case", list(owed.OWED))
def test_nothing_lacks_where_all_is_there_and_each_kind_is_missed_where_it_is_not(case: str) -> None:
    for backend, arch in (("flash_attn", "sm90"), ("flashinfer", "sm100"), ("nobody_thought_of", "sm999")):
        of = cell(backend, arch, case)
        all_of_it = [one.kind for one in owed.OWED[case] if one.by(of)]
        assert owed.lacking(of, (0, 32, 0), all_of_it) == []
        for kind in all_of_it:
            assert owed.lacking(of, (0, 32, 0), [other for other in all_of_it if other != kind]) == [kind]


def test_a_backend_that_nobody_thought_of_owes_what_every_backend_owes() -> None:
    found = owed.lacking(cell("nobody_thought_of", "sm110"), (0, 32, 0), [])
    assert {"buffers with the worst batches", "buffers without a split", "attention", "split"} <= set(found)


def test_what_a_release_has_not_is_not_owed_in_it() -> None:
    lengths = "cumulative lengths of trtllm-gen"
    assert lengths in owed.lacking(cell("flashinfer", "sm100"), (0, 13, 0), [])
    assert lengths not in owed.lacking(cell("flashinfer", "sm100"), (0, 12, 0), [])
    assert lengths not in owed.lacking(cell("flashinfer", "sm90"), (0, 32, 0), [])
