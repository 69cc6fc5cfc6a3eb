"""What a node of a cluster is sent: the same bytes for the same contents, and what makes the same environment."""

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from runner import candidates
from runner.engines.parcel import pack
from runner.environments import travelling
from runner.environments.recipe import recipe_for
from runner.matrix import Matrix

PATCH = "--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n"


def test_a_parcel_has_the_files_by_their_names_and_the_same_bytes_at_any_time(tmp_path: Path) -> None:
    for name in ("b.py", "sub/a.txt", "__pycache__/b.pyc", "sub/c.pyc", "_bundled/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    first = pack({"cases": tmp_path, "one.txt": tmp_path / "b.py"})
    with tarfile.open(fileobj=io.BytesIO(first.data)) as tar:
        assert tar.getnames() == ["cases/b.py", "cases/sub/a.txt", "one.txt"]
    (tmp_path / "b.py").touch()
    assert pack({"cases": tmp_path, "one.txt": tmp_path / "b.py"}) == first
    (tmp_path / "b.py").write_text("other")
    assert pack({"cases": tmp_path, "one.txt": tmp_path / "b.py"}).digest != first.digest


def unpack(files: dict[str, Path], place: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(pack(files).data)) as tar:
        tar.extractall(place, filter="data")


@pytest.mark.parametrize("kind", ["release", "patch", "checkout"])
def test_a_recipe_is_the_same_on_a_node_as_here(
    shipped: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    there, chart, release = tmp_path / "there", shipped, "0.32.0"
    if kind == "patch":
        (tmp_path / "fix.patch").write_text(PATCH)
        chart, release = candidates.joined(shipped, [f"fix={tmp_path / 'fix.patch'}@0.32.0"]), "fix"
    if kind == "checkout":
        (tmp_path / "tree" / "vllm").mkdir(parents=True)
        (tmp_path / "tree" / "vllm" / "__init__.py").write_text("new")
        (tmp_path / "tree" / ".gitignore").write_text("*.so\n")
        chart, release = candidates.joined(shipped, [f"fix={tmp_path / 'tree'}@0.32.0"]), "fix"
    sent, files = travelling.packed(chart, {release})
    unpack(files, there)
    here = recipe_for(chart, release)
    lock = there / sent.environments[release].lock
    on_node = travelling.unpacked(travelling.alone(sent, release), there)
    spec = replace(on_node.environments[release], lock=str(lock))  # a node's runner finds it beside itself
    found = recipe_for(replace(on_node, environments={release: spec}), release)
    assert found.digest == here.digest
    assert lock.is_relative_to(there)
    if spec.candidate:
        assert Path(spec.candidate.path).is_relative_to(there)
        assert candidates._examine(Path(spec.candidate.path), release)[1] == spec.candidate.digest
