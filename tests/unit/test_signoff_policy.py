"""A policy as a file: what is wrong with one is told at once and with its place; the shipped ones are whole."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner import cli, matrix, yaml_source
from runner.commands.schemas import SchemaOf
from runner.errors import MatrixError, UsageError
from runner.matrix import Matrix
from runner.model import Evidence, Verdict
from runner.signoff import gaps, policy
from runner.signoff.policy import Policy
from tests.unit import signoffs
from tests.unit.signoffs import MATRIX, POLICY, WAIVERS, write


@pytest.fixture
def chart(tmp_path: Path) -> Matrix:
    return matrix.load(write(tmp_path, "matrix.yaml", MATRIX))


def loaded(folder: Path, chart: Matrix, text: str = POLICY, waivers: str = "", vllm: str = "0.32.0") -> Policy:
    more = write(folder, "w.yaml", waivers) if waivers else None
    return policy.load(write(folder, "p.yaml", text), chart, vllm, waivers=more)


def test_a_policy_says_what_is_required_of_which_cells(tmp_path: Path, chart: Matrix) -> None:
    text = POLICY.replace(
        "because: it is Python", "because: it is Python\n    green_runs: 3\n    accept: xfail\n    refusals: no FP8"
    )
    blackwell, ampere = loaded(tmp_path, chart, text).requirements
    assert blackwell.evidence == (Evidence.DEVICE,)
    assert (blackwell.accept, blackwell.green_runs, blackwell.max_age_days) == ((Verdict.PASS,), 1, 14)
    assert (blackwell.refusals, ampere.refusals) == (("expected",), ("no FP8",))
    assert (ampere.accept, ampere.green_runs) == ((Verdict.XFAIL,), 3)
    assert {cell.axes["arch"] for cell in blackwell.cells} == {"sm100"}
    # of 2 backends x 2 k on sm80, a rule takes out one
    assert (len(ampere.cells), ampere.excluded) == (3, 1)


def test_a_policy_spells_its_tiers_out_and_no_matrix_narrows_them(tmp_path: Path, chart: Matrix) -> None:
    text = POLICY.replace("require:", "tiers: {all: [k0]}\nrequire:").replace("cells: [sm80]", "tier: all")
    asked = loaded(tmp_path, chart, text).requirements[1]
    assert (asked.tier, asked.tier_filters) == ("all", ("k0",))
    narrowed = matrix.load(write(tmp_path, "n.yaml", MATRIX.replace('all: ["chunk=64"]', 'all: ["chunk=64", "sm80"]')))
    assert loaded(tmp_path, narrowed, text).requirements[1].cells == asked.cells
    assert {cell.axes["spec_k"] for cell in asked.cells} == {0}
    with pytest.raises(
        MatrixError, match=r"the policy has no tier 'all': spell it out, as `tiers: {all: \[FILTER, ...\]}`"
    ):
        loaded(tmp_path, chart, text.replace("tiers: {all: [k0]}\n", ""))


def test_the_shipped_policies_mean_by_their_tiers_what_the_shipped_matrix_does(shipped: Matrix) -> None:
    """So that what they tell people to run is `--tier quick`."""
    for name in ("release", "metadata"):
        for asked in policy.load(policy.find(name), shipped, "0.32.0").requirements:
            assert not asked.tier or shipped.tiers[asked.tier] == asked.tier_filters


@pytest.mark.parametrize("word", ["refused", "refused!"])
@pytest.mark.parametrize("at", ["accept: pass", "    evidence: device"])
def test_no_policy_accepts_refusals_whatever_their_reason(word: str, at: str, tmp_path: Path, chart: Matrix) -> None:
    """They once did: `accept: [pass, refused]` made any ValueError while vLLM is configured a good result."""
    accept = f"accept: [pass, '{word}']"
    text = POLICY.replace(at, f"{at}\n    {accept}" if at.startswith(" ") else accept)
    with pytest.raises(MatrixError, match=f"'{word}' is not accepted whatever its reason"):
        loaded(tmp_path, chart, text)


def as_data(text: str) -> dict[str, Any]:
    return yaml_source.parse(text, "x").data


@pytest.mark.parametrize(("name", "text"), [("policy", POLICY), ("waivers", WAIVERS)])
def test_a_policy_and_waivers_have_a_schema(name: str, text: str, project: Path) -> None:
    schema = SchemaOf(name).schema
    assert json.loads((project / f"docs/{name}.schema.json").read_text()) == schema, f"run: runner schema {name}"
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    check.validate(as_data(text))
    for wrong in ("what: [xfial]", "what: xfial", "more: 1"):
        assert not check.is_valid(as_data(re.sub(r"what: .*", wrong, text)))


def test_the_shipped_policies_follow_the_schema_and_name_it_to_editors(project: Path) -> None:
    check = jsonschema.Draft202012Validator(SchemaOf.POLICY.schema)
    for file in sorted((project / "policies").glob("*.yaml")):
        head, rest = file.read_text().split("\n", 1)
        assert head == "# yaml-language-server: $schema=../docs/policy.schema.json"
        check.validate(as_data(rest))
        for old, new in (("accept: [pass]", "accept: refused"), ("tier: quick", "tier: 3"), ("days: ", "days: -")):
            assert not check.is_valid(as_data(rest.replace(old, new)))


@pytest.mark.parametrize("name", ["matrix", "policy", "waivers"])
def test_the_command_prints_each_schema(name: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", name]) == 0
    assert capsys.readouterr().out == (project / f"docs/{name}.schema.json").read_text()


def test_a_policy_is_for_any_release(tmp_path: Path, chart: Matrix) -> None:
    for vllm in ("0.31.0", "0.32.0"):
        asked = loaded(tmp_path, chart, vllm=vllm).requirements
        assert {cell.axes["vllm"] for one in asked for cell in one.cells} == {vllm}


def test_waivers_of_a_file_come_beside_those_of_the_policy(tmp_path: Path, chart: Matrix) -> None:
    found = loaded(tmp_path, chart, POLICY + WAIVERS.replace("nobody", "no one"), waivers=WAIVERS).waivers
    assert [one.because for one in found] == ["no one serves it there", "nobody serves it there"]


BROKEN = """\
about: 3
acept: [pass]
accept: [xfial, refused]
max_age_days: 0
environment: {recipe: same, cases_digest: []}
require:
  - name: a
    cells: [sm10, vllm=0.32.0]
    tier: al
    evidence: [devise]
    because: x
  - name: a
    cells: [sm80, flash_attn, k3]
    evidence: device
    because: x
tiers: {all: [chunk=65]}
approvers:
  - {who: x, what: [xfial], days: 9999}
waivers:
  - {cells: [], what: evidence, who: on, until: tomorrow, because: x, issue: x}
"""
SAID = {
    "1:8": "'about' must be a string, and 3 is read as a number",
    "2:1": "unknown key 'acept', did you mean 'accept'?",
    "3:10": "an item in 'accept' must be .* not 'xfial', did you mean 'xfail'",
    "3:17": "an item in 'accept': 'refused' is not accepted whatever its reason: write `refusals: expected`",
    "4:15": "'max_age_days' must be more than 0, not 0",
    "5:15": "'recipe' in 'environment' must be .* did you mean 'recipe_digest'",
    "5:43": "'cases_digest' in 'environment' is empty",
    "8:13": "an item of 'cells' in requirement 1: unknown label 'sm10', did you mean",
    "8:19": "'vllm=0.32.0' names a release: a policy is for any, --vllm says which",
    "9:11": "the policy has no tier 'al', did you mean 'all'",
    "10:16": "an item of 'evidence' in requirement 1 must be .* did you mean 'device'",
    "12:11": "another requirement is called 'a'",
    "16:15": "an item of tier 'all': axis 'chunk' has no value '65'",
    "18:21": "unknown gap 'xfial', did you mean 'xfail'",
    "18:35": "'days' in approver 1 must be at most 3650, not 9999",
    "20:13": "'cells' in waiver 1 is empty",
    "20:38": "'who' in waiver 1 must be a string, and on is read as a boolean",
    "20:49": "'until' in waiver 1 must be a date such as 2027-01-31, not 'tomorrow'",
    "20:78": "'issue' in waiver 1 must be a link",
}


def test_all_mistakes_are_told_at_once_each_with_its_place(tmp_path: Path, chart: Matrix) -> None:
    with pytest.raises(MatrixError) as caught:
        loaded(tmp_path, chart, BROKEN)
    lines = [line.removeprefix(f"{tmp_path}/p.yaml:").split(": ", 1) for line in str(caught.value).split("\n")]
    assert [place for place, _ in lines] == list(SAID)
    for place, message in lines:
        assert re.search(SAID[place], message), (place, message)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "[sm80]",
            "[sm80, flash_attn, k3]",
            r"p.yaml:11:5: requirement 2 asks for no cell that can run: it drafts nothing",
        ),
        ("[sm80]", "['nothing-*']", r"11:5: requirement 2 asks for no cell of vllm 0.32.0: no cell matches"),
        ("require:", "require: []\nother:", r"6:10: 'require' is empty"),
        (POLICY, "- a\n", r"1:1: the policy must be a mapping of about, accept"),
        (POLICY, "", "1:1: the file is empty"),
        (POLICY, "a: b\n---\nc: d\n", "a second document begins here: one file holds one policy"),
    ],
)
def test_a_policy_that_asks_for_nothing_is_a_mistake(
    old: str, new: str, said: str, tmp_path: Path, chart: Matrix
) -> None:
    assert POLICY.count(old) == 1
    with pytest.raises(UsageError, match=said):
        loaded(tmp_path, chart, POLICY.replace(old, new))


def test_a_file_of_waivers_is_checked_like_a_policy(tmp_path: Path, chart: Matrix) -> None:
    with pytest.raises(MatrixError, match=r"w.yaml:2:12: 'cells' in waiver 1: unknown label 'sm81'"):
        loaded(tmp_path, chart, waivers=WAIVERS.replace("sm80", "sm81"))
    with pytest.raises(MatrixError, match=r"w.yaml:1:1: unknown key 'about'; there is waivers"):
        loaded(tmp_path, chart, waivers="about: x\n" + WAIVERS)


@pytest.mark.parametrize("name", ["release", "metadata"])
def test_a_shipped_policy_is_whole_for_every_release(name: str, shipped: Matrix, project: Path) -> None:
    assert policy.find(name).resolve() == project / f"policies/{name}.yaml"
    for vllm in ("0.32.0", shipped.axes["vllm"][0], shipped.axes["vllm"][-1]):
        if vllm == "0.10.0":
            with pytest.raises(MatrixError, match="asks for no cell that can run"):  # forward, and the CPU backend
                policy.load(policy.find(name), shipped, str(vllm))
            continue
        found = policy.load(policy.find(name), shipped, str(vllm))
        assert found.waivers == ()
        assert set(found.environment) == {"recipe_digest", "cases_digest"}


def test_the_release_policy_asks_a_device_for_hopper_and_blackwell_and_lets_nobody_waive_what_was_never_shown(
    shipped: Matrix,
) -> None:
    found = policy.load(policy.find("release"), shipped, "0.32.0")
    for asked in found.requirements:
        archs = {cell.axes["arch"] for cell in asked.cells}
        if archs & {"sm90", "sm100", "sm103"}:
            assert asked.evidence == (Evidence.DEVICE,)
    assert not {gaps.ABSENT, gaps.EVIDENCE} & {gap for one in found.approvers for gap in one.what}


def test_a_release_that_a_policy_cannot_be_asked_of_is_told_which_requirement(shipped: Matrix) -> None:
    with pytest.raises(MatrixError, match="asks for no cell that can run: the KV cache was laid out in other ways"):
        policy.load(policy.find("release"), shipped, "0.10.0")


def test_a_name_is_a_policy_here_before_a_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policies").mkdir()
    write(tmp_path / "policies", "release.yaml", POLICY)
    write(tmp_path / "policies", "mine.yaml", POLICY)
    assert policy.find("release") == Path("policies/release.yaml")
    assert policy.find("mine") == Path("policies/mine.yaml")
    assert policy.find("metadata").is_absolute()
    assert policy.find("./release.yaml") == Path("release.yaml")
    with pytest.raises(UsageError, match="no policy is called 'metdata', did you mean 'metadata'"):
        policy.find("metdata")


def test_the_tests_policy_holds_together(tmp_path: Path, chart: Matrix) -> None:
    assert {cell.id for one in loaded(tmp_path, chart).requirements for cell in one.cells} == {
        row.id for row in signoffs.as_expected(tmp_path / "matrix.yaml", signoffs.planned(tmp_path / "matrix.yaml"))
        if row.state != "unsupported"
    }  # fmt: skip
