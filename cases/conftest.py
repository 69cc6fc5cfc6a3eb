"""Gives each case its cell, and turns what a case raised into a state of the design.

The runner's worker sets `config.attnmatrix_cell` in the process of a cell. By hand, `pytest cases --cell ID` runs one
cell in this process, in an editor's debugger if need be, and `--cells FILE` (from `runner list --json`) all of a list.
"""

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cases import lacking, owed, routes, untouched
from cases.arch import CASE
from cases.causes import cause_of
from cases.cell import Cell, from_json
from cases.releases import UnknownRelease
from cases.verdicts import (
    HandedOver,
    Ignored,
    MachineTrouble,
    Overflowed,
    Refused,
    Substituted,
    Unavailable,
    Wrong,
    ours,
    words_of,
)

HERE = Path(__file__).parent

# Before torch is imported. Its tensors are small here and workers as many as cores: threads would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # whatever pytest's settings: what torch and vLLM say when imported is not ours
    _answers = untouched.begin()
    try:
        from cases import extents, stand_ins, vllm_api
        from cases.batches import drawn

        vllm_api.warm()
    except UnknownRelease as error:
        sys.exit(str(error))  # nothing more to say: no traceback, and the runner's worker gives it as the reason
    stand_ins.COPY.warm()
    drawn.warm()
    if found := untouched.trouble():
        sys.exit(found)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attnmatrix")
    group.addoption("--cell", action="append", default=[], metavar="ID", help="run this cell (repeatable)")
    group.addoption("--cells", type=Path, metavar="FILE", help="cells as `runner list --json` prints them")
    default = int(os.environ.get("ATTNMATRIX_SEED", "0"))
    group.addoption("--seed", type=int, default=default, help="of the random batches (default: $ATTNMATRIX_SEED, or 0)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cell(*holds, **axes): the case judges only cells that these hold for")
    config.addinivalue_line("markers", "kind(name): what kind of case it is, as cases/owed.py counts them")
    config.addinivalue_line("markers", "release(judged, because): whether the installed release can be judged by it")
    config.attnmatrix_applies = applies  # type: ignore[attr-defined]
    config.stash[_BY_HAND] = _cells_by_hand(config)


def applies(item: pytest.Item, body: dict[str, Any]) -> bool:
    """Whether a case judges a cell of the installed release."""
    return speaks_of(item, body) and all(mark.args[0] for mark in item.iter_markers("release"))


def speaks_of(item: pytest.Item, body: dict[str, Any]) -> bool:
    """Whether a case is about a cell: every `cell` mark names its value of each axis it speaks of, and holds for it."""
    if body["axes"].get("case", "metadata") != CASE:
        return False
    for mark in item.iter_markers("cell"):
        if not all(holds(from_json(body)) for holds in mark.args):
            return False
        for axis, wanted in mark.kwargs.items():
            value = body["axes"][axis]
            if not (wanted(value) if callable(wanted) else value in wanted):
                return False
    return True


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Of the cases only those of the process's kind are imported: an engine takes seconds to import, and a device."""
    folder = collection_path.parent
    if not collection_path.name.startswith("test_") or HERE not in (folder, folder.parent):
        return None
    return folder != (HERE if CASE == "metadata" else HERE / CASE) or None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "by_hand" in metafunc.fixturenames and (bodies := metafunc.config.stash[_BY_HAND]):
        metafunc.parametrize("by_hand", bodies, ids=[body["id"] for body in bodies], scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """By hand: leave out the cases that do not judge their cell, and let xdist keep a cell's cases together."""
    kept, config.stash[_COLLECTED] = [], list(items)
    for item in items:
        callspec = getattr(item, "callspec", None)
        body = callspec.params.get("by_hand") if callspec else None
        if body is None or applies(item, body):
            kept.append(item)
        if body is not None:
            item.add_marker(pytest.mark.xdist_group(body["id"]))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def pytest_collection_finish() -> None:
    """All is imported: from now on torch answers by itself, in each cell."""
    _answers.close()


@pytest.fixture(autouse=True)
def _warnings_are_no_errors() -> Iterator[None]:
    """A warning turned into an exception would change what vLLM does, and so the verdict."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield


@pytest.fixture(scope="session")
def by_hand() -> dict[str, Any] | None:
    """The cell named on pytest's own command line, which parametrises this; None in the runner's worker."""
    return None


@pytest.fixture
def cell(request: pytest.FixtureRequest, by_hand: dict[str, Any] | None) -> Cell:
    """The cell under test."""
    body = by_hand or getattr(request.config, "attnmatrix_cell", None)
    if body is None:
        pytest.fail("no cell: give --cell ID or --cells FILE, or let the runner run this", pytrace=False)
    return from_json(body)


@pytest.fixture
def deployment(request: pytest.FixtureRequest, cell: Cell) -> vllm_api.Deployment:
    """What vLLM makes of the cell; made once per cell."""
    if reason := routes.needs_its_device(cell):
        pytest.skip(reason)
    last, deployed = request.config.stash.get(_DEPLOYED, (None, None))
    if last != cell:
        # by hand only: the runner gives each cell a process
        if last is not None and (last.arch, last.backend) != (cell.arch, cell.backend):
            vllm_api.forget()
        not_judged = _not_judged(request.config, cell)
        resolved: dict[str, Any] = {}
        try:
            with lacking.as_infra(cell.vllm):
                deployed = vllm_api.deploy(cell)
                resolved = vllm_api.resolved(deployed) | not_judged
        except (Refused, Substituted, Unavailable, HandedOver, Ignored, Wrong, MachineTrouble) as error:
            deployed = error
        if said := getattr(request.config, "attnmatrix_resolved", None):
            said(resolved)  # now: the process may die before a case can tell it
        request.config.stash[_RESOLVED] = {cell.id: resolved}
        request.config.stash[_DEPLOYED] = (cell, deployed)
    if isinstance(deployed, Exception):
        raise deployed
    assert deployed is not None
    request.node.user_properties.append(("resolved", request.config.stash[_RESOLVED][cell.id]))
    return deployed


@pytest.fixture
def resolved(request: pytest.FixtureRequest, deployment: vllm_api.Deployment) -> dict[str, Any]:
    """What vLLM chose by itself; found out once per cell."""
    return request.config.stash[_RESOLVED][deployment.cell.id]


@pytest.fixture
def auditor(request: pytest.FixtureRequest, deployment: vllm_api.Deployment) -> extents.Auditor:
    """Builds batches on the cell's deployment and watches the buffers; made once per cell, as by a server."""
    kept: dict[str, extents.Auditor] = request.config.stash.setdefault(_AUDITOR, {})
    if deployment.cell.id not in kept:
        kept.clear()
        kept[deployment.cell.id] = extents.Auditor(deployment)
    return kept[deployment.cell.id]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.excinfo is not None or call.when == "call":
        report.attnmatrix = _outcome(call.excinfo.value if call.excinfo else None, dict(item.user_properties))
    return report


_COLLECTED = pytest.StashKey[list[pytest.Item]]()
_BY_HAND = pytest.StashKey[list[dict[str, Any]]]()
_DEPLOYED = pytest.StashKey[tuple[Cell, vllm_api.Deployment | Exception]]()
_RESOLVED = pytest.StashKey[dict[str, dict[str, Any]]]()
_AUDITOR = pytest.StashKey[dict[str, extents.Auditor]]()


def _not_judged(config: pytest.Config, cell: Cell) -> dict[str, Any]:
    """What of the cell the cases cannot judge in this release, for `resolved`. LookupError where a kind is not there.

    By hand a person chooses the cases, and nothing is owed.
    """
    if (body := getattr(config, "attnmatrix_cell", None)) is None:
        return {}
    about = [item for item in config.stash[_COLLECTED] if speaks_of(item, body)]
    if lost := owed.lacking(
        cell, vllm_api.VERSION, [mark.args[0] for item in about for mark in item.iter_markers("kind")]
    ):
        raise LookupError(f"no case judges what this cell owes ({', '.join(lost)}): see cases/owed.py and the marks")
    marks = ((item, mark) for item in about for mark in item.iter_markers("release"))
    kinds = {
        kind.args[0]: mark.args[1] for item, mark in marks if not mark.args[0] for kind in item.iter_markers("kind")
    }
    return {"not_judged": kinds} if kinds else {}


def _outcome(error: BaseException | None, properties: dict[str, Any]) -> dict[str, Any]:
    """State, message, overflows, what vLLM resolved and where in vLLM it came from, from what a case raised."""
    state, overflows = "fail", []
    match error:
        case AssertionError():
            state = "fail"
        case None:
            state = "pass"
        case Overflowed():
            state = "fail" if error.also else "overflow"
            overflows = [
                {
                    "buffer": o.buffer,
                    "required": o.required,
                    "allocated": o.allocated,
                    "how": o.how,
                    "batch": {"query_lens": list(o.batch.query_lens), "seq_lens": list(o.batch.seq_lens)},
                }
                for o in error.overflows
            ]
        case Refused():
            state = "refused"
        case Substituted():
            state = "substituted"
        case Unavailable():
            state = "skipped"
        case MachineTrouble():
            state = "infra"
        case MemoryError():
            state = "oom"
        case _ if type(error).__name__ == "OutOfMemoryError":  # torch's, for a device
            state = "oom"
        case pytest.skip.Exception():
            state = "skipped"
        case _ if ours(error):
            state = "missing"  # a mistake of ours, such as an API of vLLM that the cases do not know: no verdict
    said_whole = isinstance(error, HandedOver | Wrong) or state not in ("fail", "missing", "oom")
    message = "" if error is None else str(error) if said_whole else words_of(error)
    return {
        "state": state,
        "message": message,
        "overflow": overflows,
        "resolved": properties.get("resolved", {}),
        "cause": cause_of(error) if state not in ("pass", "skipped") else None,
    }


def _cells_by_hand(config: pytest.Config) -> list[dict[str, Any]]:
    """The cells asked for on pytest's own command line."""
    wanted, file = config.getoption("--cell"), config.getoption("--cells")
    if not wanted and file is None:
        return []
    if file is not None:
        text = file.read_text()
    else:
        try:
            text = _listed(wanted)
        except (OSError, subprocess.CalledProcessError) as error:
            raise pytest.UsageError(
                f"cannot ask the runner for its cells ({error}): give --cells FILE, made by `runner list --json`"
            ) from error
    bodies = {body["id"]: body for body in json.loads(text)}
    unknown = [id_ for id_ in wanted if id_ not in bodies]
    if unknown:
        raise pytest.UsageError(f"no such cell: {', '.join(unknown)} (`runner list` prints all)")
    chosen = [bodies[id_] for id_ in wanted] if wanted else [b for b in bodies.values() if not b.get("unsupported")]
    for body in chosen:
        if (case := body["axes"].get("case", "metadata")) != CASE:
            raise pytest.UsageError(
                f"{body['id']} is judged by the cases of {case}, this process has those of {CASE}: "
                f"set ATTNMATRIX_CASE={case} and ATTNMATRIX_EVIDENCE={body['evidence']}"
            )
    return chosen


NOTHING_SELECTED = 5
"""The runner's exit code where its filters match no cell."""


def _listed(ids: list[str]) -> str:
    """The cells that the runner knows by these ids, as JSON: those too that a run leaves out by default."""
    if not (chosen := ",".join(id_ for id_ in ids if "-" in id_)):  # a word without a dash is no id
        return "[]"
    runner = shutil.which("runner") or str(Path(__file__).parents[1] / ".venv" / "bin" / "runner")
    done = subprocess.run([runner, "list", "--json", "--filter", chosen], capture_output=True, text=True, check=False)
    if done.returncode != NOTHING_SELECTED:
        done.check_returncode()
    return done.stdout or "[]"
