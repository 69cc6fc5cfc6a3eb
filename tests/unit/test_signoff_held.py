"""What held once, though it was made up: digests and pages were made anew behind each, and `verify` exited with 0."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import cli, plan, results
from runner.errors import RunnerError
from runner.model import CellResult, Evidence, State, Verdict
from runner.signoff import bundle
from runner.signoff.verify import Expected, Given, verify
from tests.unit import signoffs
from tests.unit.signoffs import AT, FIX, MATRIX, ON_A_GPU, POLICY, WAIVERS, ended, run, sign, write

K0 = "0.32.0-flash_attn-sm100-hybrid_on-k0-c64-small"
SM80 = "0.32.0-flash_attn-sm80-hybrid_on-k0-c64-small"
Change = Callable[[CellResult], CellResult]


def given(path: Path) -> Given:
    return Given(title=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def said(path: Path, **expected: Any) -> str:
    """What verify finds."""
    return "\n".join(verify(path, now=AT, expected=Expected(**expected)).findings)


def unchecked(path: Path, **expected: Any) -> str:
    return "\n".join(verify(path, now=AT, expected=Expected(**expected)).unchecked)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A bundle of one run on one GPU, which says GO WITH WAIVERS."""
    return sign(tmp_path, run(tmp_path, "a", devices=["sm100"]), waivers=WAIVERS)[0]


def forged(whole: Path, change: Callable[[str], str], name: str = "results.json") -> str:
    """What verify says where a file of the run was changed, and pages and digests were made anew."""
    path = whole / "inputs/runs/1" / name
    changed = change(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    try:
        for output, data in bundle.derive(whole).files.items():
            (whole / output).write_bytes(data)
    except RunnerError:
        pass  # the product itself refuses to make them
    (whole / bundle.SUMS).write_bytes(bundle.sums_of(bundle.digests(whole)))
    return said(whole)


def forged_row(whole: Path, id_: str, change: Change) -> str:
    def changed(text: str) -> str:
        rows = results.parse(text.encode(), "x")
        return results.to_json([change(row) if row.id == id_ else row for row in rows])

    return forged(whole, changed)


EXCLUDED = MATRIX.replace(
    "rules:\n", "rules:\n  - exclude: {backend: flashinfer, arch: sm80}\n    because: nobody asks\n"
).replace("arch: sm80}\n    state", "arch: sm100}\n    state")


def test_a_rule_that_takes_the_broken_cells_out_is_found_by_the_matrix_from_outside(
    whole: Path, tmp_path: Path
) -> None:
    """GO WITH WAIVERS became GO."""
    text = EXCLUDED.replace("known:", "known_: ").split("known_: ")[0] + "tiers: {}\n"
    forged, made, _ = sign(tmp_path, run(tmp_path, "b", devices=["sm100"], text=text), out="forged")
    assert made.judgement.decision == "GO"
    ours = given(whole / "inputs/matrix.yaml")
    assert said(forged) == ""
    assert "its matrix, with the rules and the known issues: give --matrix FILE" in unchecked(forged)
    assert said(forged, matrix=ours) == (
        "it was decided by another matrix than matrix.yaml: see its inputs/matrix.yaml"
    )
    assert said(whole, matrix=ours) == ""


def test_a_changed_load_is_found_in_a_plan_and_by_the_matrix_from_outside(whole: Path, tmp_path: Path) -> None:
    text = MATRIX.replace("max_num_seqs: 4", "max_num_seqs: 64")
    forged_bundle, _, _ = sign(tmp_path, run(tmp_path, "b", devices=["sm100"], text=text), waivers=WAIVERS, out="f")
    assert said(forged_bundle) == ""
    assert "another matrix" in said(forged_bundle, matrix=given(whole / "inputs/matrix.yaml"))
    found = forged(whole, lambda text: text.replace('"max_num_seqs": 4', '"max_num_seqs": 64'), "plan.json")
    assert "was planned with another matrix" in found


def test_a_rule_or_a_cell_in_a_plan_alone_is_found_even_where_nobody_asks_for_the_cell(tmp_path: Path) -> None:
    policy = POLICY.replace("[sm80]", '["sm80", "flash_attn"]')

    def made(name: str) -> Path:
        return sign(tmp_path, run(tmp_path, name, devices=["sm100"]), policy=policy, out=f"{name}-b")[0]

    for name, old, new, words in (
        ("rule", '"unsupported": ""', '"unsupported": "so"', "a rule there that excludes it (so)"),
        ("no rule", '"unsupported": "it drafts nothing there"', '"unsupported": ""', "not the rule there"),
        ("axis", '"spec_k": 3', '"spec_k": 4', "has spec_k 4, which is no value there"),
        ("label", '"spec_k": "k0"', '"spec_k": "k1"', "another id or other labels there"),
        ("cpu", '"evidence": "emulated"', '"evidence": "cpu"', "such a cell is emulated or device"),
    ):
        found = forged(made(name), lambda text, old=old, new=new: text.replace(old, new, 1), "plan.json")
        assert words in found, name


def test_waivers_are_held_to_those_from_outside(whole: Path, tmp_path: Path) -> None:
    by_anybody = POLICY.replace("who: release-manager", "who: anybody")
    waivers = WAIVERS.replace("release-manager", "anybody")
    a_run = run(tmp_path, "b", devices=["sm100"])
    forged_bundle, made, _ = sign(tmp_path, a_run, policy=by_anybody, waivers=waivers, out="forged")
    assert made.judgement.decision == "GO WITH WAIVERS"
    ours, policy = given(whole / "inputs/waivers.yaml"), given(whole / "inputs/policy.yaml")
    assert said(forged_bundle) == ""
    assert "its waivers: give --waivers FILE, or --no-waivers" in unchecked(forged_bundle)
    assert "decided by other waivers than waivers.yaml" in said(forged_bundle, waivers=ours)
    assert "decided by another policy than policy.yaml" in said(forged_bundle, policy=policy)
    assert "decided with waivers: see its inputs/waivers.yaml" in said(forged_bundle, no_waivers=True)
    none, _, _ = sign(tmp_path, run(tmp_path, "c", devices=["sm100"]), out="none")
    assert said(none, no_waivers=True) == ""
    assert said(none, waivers=ours) == "it was decided without waivers, not with waivers.yaml"


def test_what_it_is_compared_with_is_held_to_that_from_outside(whole: Path, tmp_path: Path) -> None:
    before = run(tmp_path, "before", "vllm=0.31.0")
    with_since, _, _ = sign(tmp_path, run(tmp_path, "b", devices=["sm100"]), waivers=WAIVERS, since=before, out="s")
    assert said(with_since, since=given(before / "results.json")) == ""
    assert "its inputs/since/results.json" in said(with_since, since=given(before / "plan.json"))
    assert "decided without results of the run before" in said(whole, since=given(before / "results.json"))
    assert "the results that it is compared with: give --since RUN" in unchecked(with_since)
    assert "--since" not in unchecked(whole)


def test_emulated_is_no_device_because_somebody_types_a_gpu(tmp_path: Path) -> None:
    """In the plan as well, so that both agree."""
    a_run = run(tmp_path, "a")
    whole = sign(tmp_path, a_run)[0]
    path = whole / "inputs/runs/1/plan.json"
    (path).write_text(path.read_text().replace("emulated", "device"))

    def with_a(gpu: dict[str, str]) -> Change:
        return lambda row: replace(row, evidence=Evidence.DEVICE, environment={**row.environment, **gpu})

    def found(gpu: dict[str, str]) -> str:
        copy = Path(shutil.copytree(whole, tmp_path / f"copy{len(gpu)}"))

        def change(text: str) -> str:
            rows = results.parse(text.encode(), "x")
            return results.to_json([row if row.state is State.UNSUPPORTED else with_a(gpu)(row) for row in rows])

        return forged(copy, change)

    typed = {"gpu": "NVIDIA B200"}
    assert "says device and names no driver" in found(typed)
    typed |= {"driver": "590.1"}
    assert "says device and ran torch 2.13.0+cpu, which has no GPU code" in found(typed)
    typed |= {"torch": "2.13.0"}
    assert "is of sm80, and ran on a NVIDIA B200" in found(typed)


def test_one_environment_is_not_on_a_gpu_and_without_one(whole: Path) -> None:
    emulated = ON_A_GPU["recipe_digest"]
    change: Change = lambda row: replace(row, environment={**row.environment, "recipe_digest": emulated})  # noqa: E731
    assert "ran in one environment (dd22), and say torch" in forged_row(whole, SM80, change)


def test_a_result_without_a_gpu_names_none(whole: Path) -> None:
    change: Change = lambda row: replace(row, environment={**row.environment, "gpu": "NVIDIA A100"})  # noqa: E731
    assert "says emulated and names the gpu NVIDIA A100" in forged_row(whole, SM80, change)


def test_a_state_that_does_not_follow_from_the_cases_is_found(tmp_path: Path) -> None:
    def broken(row: CellResult) -> CellResult:
        return ended(row, State.FAIL) if row.id == K0 else row

    whole, _, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"], change=broken), waivers=WAIVERS)
    passed: Change = lambda row: replace(row, state=State.PASS, verdict=Verdict.PASS, reason="")  # noqa: E731
    assert f"{K0} says pass, and its cases say fail" in forged_row(whole, K0, passed)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: replace(row, cases=()), "says pass, and it has no case"),
        (lambda row: replace(row, state=State.SKIPPED, cases=()), "says skipped, and the plan says that it runs"),
        (lambda row: replace(row, verdict=Verdict.XFAIL), "results.json of run"),
        (lambda row: replace(row, reason="so"), "results.json of run"),
        (lambda row: replace(row, overflow=(signoffs.overflow(),)), "has an overflow that its cases do not have"),
        (lambda row: replace(row, duration_s=-1.0), "has a duration that is no number of seconds"),
        (lambda row: replace(row, cases=row.cases * 2), "has a case twice"),
        (lambda row: replace(row, duration_s=0.001, cases=(replace(row.cases[0], duration_s=7.0),)), "than its cases"),
        (lambda row: replace(row, repro=f"curl x | sh; runner repro {row.id}"), "is shown again by another command"),
        (lambda row: replace(row, repro=f"runner repro --seed 7 {row.id}"), "are shown again in different ways"),
        (lambda row: replace(row, environment=row.environment | {"vllm": "0.31.0"}), "of vllm 0.32.0, and ran 0.31.0"),
        (lambda row: replace(row, environment=row.environment | {"vllm": ""}), "does not say which vllm it ran with"),
        (lambda row: replace(row, environment=row.environment | {"more": "x"}), "which no result says"),
        (lambda row: replace(row, environment=row.environment | {"candidate": str(FIX)}), "and ran the candidate"),
        (lambda row: replace(row, resolved={"backend": "flashinfer"}), "says pass, and vLLM ran flashinfer"),
    ],
)
def test_a_result_that_contradicts_itself_is_found(change: Change, words: str, whole: Path) -> None:
    assert words in forged_row(whole, K0, change)


def test_a_build_of_a_release_is_that_release(tmp_path: Path) -> None:
    """Such as vLLM's own CPU wheels say it."""

    def built(row: CellResult) -> CellResult:
        version = {"vllm": "0.32.0.post2+cpu"} if row.evidence is Evidence.EMULATED and row.ended_at else {}
        return replace(row, environment={**row.environment, **version})

    sign(tmp_path, run(tmp_path, "a", devices=["sm100"], change=built))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"duration_s":0.05', '"duration_s":NaN'),
        ('"duration_s":0.05', '"duration_s":Infinity'),
        ('"state":"pass",', '"state":"fail","state":"pass",'),
        ('"duration_s":0.05', '"duration_s":"0.05"'),
        ('"duration_s":0.05', '"duration_s":0.05,"more":1'),
        ('"known":"",', ""),
        ("]\n", "]\n\n"),
    ],
)
def test_a_file_says_nothing_beside_what_is_read_from_it(old: str, new: str, whole: Path) -> None:
    found = forged(whole, lambda text: text.replace(old, new))
    assert "results.json" in found or "is no number of seconds" in found


@pytest.mark.parametrize("name", ["request.json", "runs/1/plan.json"])
def test_no_other_file_has_a_key_twice_either(name: str, whole: Path) -> None:
    first = '"vllm": ' if name == "request.json" else '"evidence": '
    found = forged(whole, lambda text: text.replace(first, f'{first}"x", {first}', 1), f"../../{name}")
    assert f"{Path(name).name}" in found
    assert "is not what the runner writes of it" in found


def test_a_candidate_is_not_presented_as_a_release(tmp_path: Path) -> None:
    """Neither by its results under the release's name, nor by a candidate of that name."""
    a_run = run(tmp_path, "a", "vllm=fix", "sm80", candidates_=[FIX])
    whole, made, _ = sign(tmp_path, a_run, policy=POLICY.replace("evidence: device", "evidence: emulated"))
    assert made.inputs.request.vllm == "fix"
    assert said(whole, vllm="fix") == ""
    assert said(whole, vllm="0.32.0") == "it is about vLLM fix, not 0.32.0"
    path = whole / "inputs/request.json"
    path.write_text(path.read_text().replace('"vllm": "fix"', '"vllm": "0.32.0"'))
    kept = whole / "inputs/runs/1/candidates.json"
    kept.write_text(kept.read_text().replace('"name": "fix"', '"name": "0.32.0"'))
    found = forged(whole, lambda text: text.replace("fix", "0.32.0"))
    assert "'0.32.0' is no name of a candidate" in found
    plan_file = whole / "inputs/runs/1/plan.json"
    plan_file.write_text(plan_file.read_text().replace("fix", "0.32.0"))
    kept.unlink()
    assert "is of the release 0.32.0, and ran the candidate" in forged(whole, lambda text: text.replace("cc11", "cc12"))


@pytest.mark.parametrize("field", [{"digest": "f" * 16}, {"over": "0.31.0"}, {"kind": "checkout"}])
def test_a_candidate_is_the_one_that_was_judged(field: dict[str, str], tmp_path: Path) -> None:
    a_run = run(tmp_path, "a", "vllm=fix", "sm80", candidates_=[FIX])
    whole, _, _ = sign(tmp_path, a_run, policy=POLICY.replace("evidence: device", "evidence: emulated"))

    def change(text: str) -> str:
        return json.dumps([json.loads(text)[0] | field], indent=1)

    assert "and ran patch fix.patch 0123456789abcdef over 0.32.0" in forged(whole, change, "candidates.json")


def test_a_run_that_says_what_cannot_be_is_not_signed_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same is checked before a bundle is written, and said with what is wrong."""
    a_run = run(tmp_path, "a", devices=["sm100"])
    path = a_run / "results.json"
    path.write_text(path.read_text().replace('"duration_s":0.05', '"duration_s":NaN', 1))
    policy = write(tmp_path, "p.yaml", POLICY)
    assert cli.main(["signoff", str(a_run), "--policy", str(policy)]) == 2
    assert "has a duration that is no number of seconds" in capsys.readouterr().err


def hostile(path: Path) -> dict[str, Path]:
    """Folders that are no bundle, each with the file that a bundle begins with."""
    made = {}
    for name in ("bytes", "sparse", "link", "fifo", "deep", "many", "loop", "wide"):
        made[name] = path / name
        (path / name / "inputs").mkdir(parents=True)
        (path / name / "SHA256SUMS").write_text("")
    (Path(os.fsdecode(os.fsencode(made["bytes"]) + b"/inputs/\xff\xfe"))).write_text("x")
    with (made["sparse"] / "inputs/results.json").open("wb") as file:
        file.truncate(5 << 30)
    (made["link"] / "inputs/policy.yaml").symlink_to("/etc/passwd")
    os.mkfifo(made["fifo"] / "inputs/request.json")
    deep = made["deep"]
    for _ in range(200):
        deep = deep / "d"
        deep.mkdir()
    for number in range(10_000):
        os.mknod(made["many"] / f"inputs/{number}")
    (made["loop"] / "inputs/runs").symlink_to(made["loop"])
    (made["wide"] / "inputs" / ("x" * 200)).write_text("x")
    return made


def test_hostile_folders_are_refused_within_a_second_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {
        "bytes": "no file of a bundle has such a name",
        "sparse": "the files are larger than 1 GiB together",
        "link": "is no plain file",
        "fifo": "is no plain file",
        "deep": "directories are nested deeper than in a bundle",
        "many": "it holds more than 2,000 files and directories",
        "loop": "is no plain file",
        "wide": "no file of a bundle has such a name",
    }
    for name, path in hostile(tmp_path).items():
        began = time.process_time()
        assert cli.main(["verify", str(path)]) == 1
        assert time.process_time() - began < 1, name
        assert words[name] in capsys.readouterr().out


def test_every_file_of_json_may_be_nested_or_long_beyond_reading(whole: Path) -> None:
    for name in ("results.json", "plan.json", "../../request.json"):
        for text in ("[" * 100_000, '{"a":' * 100_000, "1" * 100_000, ""):
            assert forged(whole, lambda _, text=text: text + " ", name)


def test_the_plan_is_read_by_what_made_it(whole: Path) -> None:
    """The rows of the fixture are what the product makes, or the tests above would find something else."""
    planned = plan.from_json((whole / "inputs/runs/1/plan.json").read_bytes()).planned
    assert {one.evidence for one in planned} == {Evidence.DEVICE, Evidence.EMULATED}
    assert said(whole) == ""
