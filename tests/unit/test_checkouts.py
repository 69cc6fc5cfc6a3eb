"""A checkout as a package: no link leads out of it, and the release that it is near is found by what it says."""

import subprocess
from pathlib import Path

import pytest

from runner import checkouts, cli
from runner.checkouts import BadCheckout, Near

RELEASES = ["0.10.0", "0.10.1.1", "0.10.2", "0.31.0", "0.32.0", "0.33.0"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "tree/vllm"
    (package / "v1").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "v1/a.py").write_text("a = 1\n")
    return tmp_path / "tree"


def test_its_files_are_those_of_the_package_without_what_is_built(tree: Path) -> None:
    for name in ("vllm/_C.abi3.so", "vllm/v1/__pycache__/a.cpython-311.pyc", "vllm/_version.py", "setup.py"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("")
    assert list(checkouts.files(tree)) == ["vllm/__init__.py", "vllm/v1/a.py"]
    (tree / ".gitignore").write_text("*.so\n")
    assert list(checkouts.files(tree)) == [".gitignore", "vllm/__init__.py", "vllm/v1/a.py"]


@pytest.mark.parametrize(
    ("link", "target", "said"),
    [
        ("vllm/secret.py", "/etc/hostname", r"vllm/secret\.py is a link to /etc/hostname, out of the checkout"),
        ("vllm/up.py", "../../beside.py", r"vllm/up\.py is a link to .*/beside\.py, out of the checkout"),
        ("vllm/folder", "/etc", r"vllm/folder is a link to /etc, out of the checkout"),
        ("vllm/again", "v1", r"vllm/again is a link to a folder"),
        ("vllm/loop.py", "loop.py", r"vllm/loop\.py is a link that leads nowhere"),
        ("vllm/nowhere.json", "absent", r"vllm/nowhere\.json is a link that leads nowhere"),
    ],
)
def test_a_link_that_is_no_file_of_the_checkout_is_refused(tree: Path, link: str, target: str, said: str) -> None:
    (tree.parent / "beside.py").write_text("secret")
    (tree / link).symlink_to(target)
    with pytest.raises(BadCheckout, match=said):
        checkouts.files(tree)


def test_a_package_that_is_a_link_out_of_the_checkout_is_refused(tmp_path: Path, tree: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/vllm").symlink_to(tree / "vllm")
    with pytest.raises(BadCheckout, match="out of the checkout"):
        checkouts.files(tmp_path / "other")


def test_a_link_out_ends_the_command_with_its_name(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "vllm/secret.py").symlink_to("/etc/hostname")
    assert cli.main(["list", "--candidate", f"mine={tree}"]) == 2
    error = capsys.readouterr().err
    assert f"--candidate mine: {tree}/vllm/secret.py is a link to /etc/hostname" in error


def test_a_link_within_is_the_file_that_it_leads_to(tree: Path) -> None:
    (tree / "shared.py").write_text("shared = 1\n")
    (tree / "vllm/shared.py").symlink_to("../shared.py")
    assert checkouts.files(tree)["vllm/shared.py"].read_text() == "shared = 1\n"
    (tree.parent / "name").symlink_to("tree")
    assert "vllm/shared.py" in checkouts.files(tree.parent / "name"), "its own name may be a link"


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.32.0", "0.32.0"),
        ("0.32.1.dev203+gabc", "0.32.0"),
        ("0.32.0rc3.dev5+g1", "0.32.0"),
        ("0.33.0.dev0", "0.33.0"),
        ("0.34.0rc1", "0.33.0"),
        ("0.10.1", "0.10.0"),
        ("0.10.1.1+cpu", "0.10.1.1"),
        ("0.20.0", "0.10.2"),
        ("0.9.0", "0.10.0"),
        ("unknown", None),
    ],
)
def test_the_nearest_release_is_of_the_same_minor_where_there_is_one(version: str, release: str | None) -> None:
    assert checkouts.nearest(version, RELEASES) == release


def test_what_a_checkout_says_of_its_version(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkouts.near(tree) is None
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: vllm\nVersion: 0.30.0\n")
    assert checkouts.near(tree) == Near("0.30.0", "PKG-INFO")
    (tree / "vllm/_version.py").write_text("__version__ = version = '0.31.1.dev3+gabc'\n")
    assert checkouts.near(tree) == Near("0.31.1.dev3+gabc", "vllm/_version.py")
    for variable, value in (("HOME", str(tree)), ("GIT_CONFIG_NOSYSTEM", "1")):
        monkeypatch.setenv(variable, value)
    git = ["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a"], ["tag", "v0.32.0"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "b"], check=True)
    assert checkouts.near(tree) == Near("0.32.0", "git describe"), "what is checked out now, whatever was built"


def test_the_operations_that_sources_call() -> None:
    text = (
        b"torch.ops._C.rms_norm(x)\nhasattr(torch.ops._C_cache_ops, 'b')\ntorch.ops._moe_C.topk\ntorch.ops.aten.add\n"
    )
    assert checkouts.operations(iter([text])) == {"_C.rms_norm", "_moe_C.topk"}
