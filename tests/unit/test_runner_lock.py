"""What jobs install the runner from: the lock is whole, and real pip takes nothing that it does not name."""

import hashlib
import os
import re
import subprocess
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.unit import quick_venv

ROOT = Path(__file__).parents[2]
LOCK = ROOT / ".github/locks/runner.txt"
INSTALL = ROOT / ".github/actions/runner/install.sh"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = ("3.11", "3.12", "3.13", "3.14")

# A build backend in the project itself: it needs no package.
BACKEND = """
import zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{wheel_directory}/mine-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("mine.py", "import tiny")
        wheel.writestr("mine-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: mine\\nVersion: 1.0\\n")
        wheel.writestr("mine-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("mine-1.0.dist-info/RECORD", "")
    return "mine-1.0-py3-none-any.whl"
"""
PYPROJECT = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def locked(python: str, platform: str = "linux") -> dict[str, Version]:
    """What the lock names for this Python, by name."""
    text = re.sub(r"^\s*#.*\n?", "", LOCK.read_text(), flags=re.MULTILINE)
    found = {}
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        said, *hashes = line.split(" --hash=")
        assert hashes, line
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), line
        requirement = Requirement(said)
        (only,) = requirement.specifier
        assert only.operator == "==", line
        if holds(requirement, python, platform):
            assert found.setdefault(canonicalize_name(requirement.name), Version(only.version)) == Version(only.version)
    return found


def holds(requirement: Requirement, python: str, platform: str = "linux", extra: str = "") -> bool:
    environment = {
        "python_version": python, "python_full_version": f"{python}.1", "sys_platform": platform,
        "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix", "extra": extra,
    }  # fmt: skip
    return requirement.marker is None or requirement.marker.evaluate(environment)


def test_the_lock_has_all_that_pyproject_asks_for() -> None:
    asked = [Requirement(one) for one in (*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"])]
    for python in PYTHONS:
        found = locked(python)
        for one in asked:
            version = found.get(canonicalize_name(one.name))
            assert version, f"{one} is not in the lock: make lock"
            assert version in one.specifier, f"{one}: the lock has {version}: make lock"


def test_the_lock_has_all_that_it_needs_itself() -> None:
    """By what the packages say that are installed here, which `make test` installs by pyproject.toml."""
    for python in PYTHONS:
        found = locked(python)
        for name in found:
            for text in metadata.requires(name) or ():
                needed = Requirement(text)
                if holds(needed, python):
                    assert canonicalize_name(needed.name) in found, f"{name} needs {needed}: make lock"


def test_the_lock_names_no_index() -> None:
    assert "://" not in LOCK.read_text()
    assert not re.search(r"^-", LOCK.read_text(), re.MULTILINE)


def write_wheel(folder: Path, name: str, text: str, needs: str = "") -> str:
    """Writes it, and gives its line of a lock."""
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", text)
        needs = needs and f"Requires-Dist: {needs}\n"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def test_install_sh_takes_only_what_the_lock_names(tmp_path: Path) -> None:
    """With real pip, and a folder in the place of the index."""
    project, wheels, bin_ = tmp_path / "project", tmp_path / "wheels", tmp_path / "bin"
    lock = project / ".github/locks/runner.txt"
    for folder in (lock.parent, wheels, bin_):
        folder.mkdir(parents=True)
    (project / "backend.py").write_text(BACKEND)
    (project / "pyproject.toml").write_text(PYPROJECT)
    quick_venv.python3(bin_)
    path = tmp_path / "path"
    env = {
        "PATH": f"{bin_}:/usr/bin:/bin", "PROJECT": str(project), "RUNNER_TEMP": str(tmp_path),
        "GITHUB_PATH": str(path), "GITHUB_ENV": str(tmp_path / "env"), "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_NO_CACHE_DIR": "1",
    }  # fmt: skip

    def install() -> tuple[int, str]:
        done = subprocess.run(["bash", INSTALL], env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    second = write_wheel(wheels, "second", "")
    lock.write_text(write_wheel(wheels, "tiny", "", needs="second"))
    code, said = install()
    assert code == 3
    assert re.search(r"requirements must have their versions pinned with ==.*second", said, re.DOTALL), said
    assert "::error title=Packages::" in said

    lock.write_text(lock.read_text() + second)
    write_wheel(wheels, "tiny", "import os  # another file of the same name", needs="second")
    code, said = install()
    assert code == 3
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in said
    assert not path.exists(), "the steps that follow find no runner"

    lock.write_text(write_wheel(wheels, "tiny", "", needs="second") + second)
    code, said = install()
    assert code == 0, said
    assert path.read_text() == f"{tmp_path}/attnmatrix/bin\n"
    subprocess.run([tmp_path / "attnmatrix/bin/python", "-c", "import mine, second"], check=True)


def test_no_workflow_installs_anything_by_itself() -> None:
    """The job that attests has no other packages than install.sh gives it."""
    taken = re.compile(r"\b(pip|pipx|uv|npm|apt-get|apt|curl|wget)\b +\w*(install|download|update|http)")
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        assert not taken.search(path.read_text()), path.name
    assert "apt" not in INSTALL.read_text()
