"""What docs/signoff.md shows is what the commands make of a quick tier in which all is as the known issues expect.

That is what a run of vLLM 0.32.0 without a GPU is: it exits 0.
"""

import re
from pathlib import Path

import pytest

from runner import cli
from runner.matrix import Matrix
from runner.signoff import gaps, policy
from tests.unit import signoffs


@pytest.fixture(scope="module")
def page() -> str:
    return (Path(__file__).parents[2] / "docs/signoff.md").read_text()


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As planned without a GPU."""
    text = (Path(__file__).parents[2] / "matrix.yaml").read_text()
    return signoffs.run(tmp_path_factory.mktemp("quick"), "quick", tier="quick", text=text)


def blocks(page: str, first: str) -> list[str]:
    return [block for block in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S) if block.startswith(first)]


def test_the_page_of_the_release_policy_is_the_one_in_the_docs(page: str, quick: Path, tmp_path: Path) -> None:
    folder, made, _ = signoffs.sign_by(tmp_path, quick, "release")
    assert made.judgement.decision == "NO-GO"
    shown = page.split("<!-- page: release -->\n```text\n")[1].split("\n```")[0]
    written = (folder / "signoff.md").read_text()
    head, rest = shown.split("\n\n## What is asked for", 1)
    assert written.startswith(head)
    assert f"## What is asked for{rest}" in written


def test_it_says_exactly_which_device_evidence_is_missing(quick: Path, tmp_path: Path) -> None:
    """By hand: 4 GPU backends x 3 archs x 2 hybrid x 4 k x 2 chunks x 2 loads, and 4 x 3 x 2 x 2 k of `forward`."""
    _, made, _ = signoffs.sign_by(tmp_path, quick, "release")
    wanting = [
        one
        for one in made.judgement.cells
        if one.requirement.evidence == ("device",) and {gap.name for gap in one.open} & {gaps.EVIDENCE, gaps.ABSENT}
    ]
    assert {one.cell.axes["arch"] for one in wanting} == {"sm90", "sm100", "sm103"}
    assert [one.cell.axes["case"] for one in wanting].count("metadata") == 4 * 3 * 2 * 4 * 2 * 2
    assert [one.cell.axes["case"] for one in wanting].count("forward") == 4 * 3 * 2 * 2
    assert not any(one.evidence for one in wanting)


def test_the_waivers_of_the_docs_make_the_metadata_policy_go_with_waivers(
    page: str, quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (waivers,) = blocks(page, "waivers:")
    file = signoffs.write(tmp_path, "waivers.yaml", waivers)
    words = ["signoff", str(quick), "--policy", "metadata", "--waivers", str(file), "--at", signoffs.AT.isoformat()]
    assert cli.main([*words, "--out", str(tmp_path / "bundle")]) == 0
    shown = page.split("--waivers waivers.yaml\nGO")[1].split("\n```")[0]
    assert capsys.readouterr().out.startswith(f"GO{shown}\n")


def test_the_policy_of_the_docs_is_taken(page: str, shipped: Matrix, tmp_path: Path) -> None:
    (text,) = blocks(page, "about:")
    found = policy.load(signoffs.write(tmp_path, "p.yaml", text.replace("waivers: [] ", "")), shipped, "0.32.0")
    (asked,) = found.requirements
    assert (asked.green_runs, asked.max_age_days) == (2, 14)


def test_every_gap_has_its_line_in_the_docs(page: str) -> None:
    table = page.split("| gap | when |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(gaps.MEANING)
