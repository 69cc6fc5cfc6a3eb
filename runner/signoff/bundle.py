"""A bundle: a directory with the inputs of a decision, and with what follows from them and from nothing else.

SHA256SUMS                   of every file below, as `sha256sum --check` reads it; its own digest names the bundle
inputs/                      request.json, policy.yaml, waivers.yaml, matrix.yaml, runs/1/..., since/...
signoff.md, signoff.html     the page
signoff.json                 the same for programs
statement.json               in-toto, to be signed
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from runner import __version__, candidates, matrix, results, rundir
from runner import plan as planning
from runner.errors import MachineError, UsageError
from runner.signoff import consistency, html, inputs, markdown, page, policy, record, sources, statement
from runner.signoff.inputs import Inputs, Request
from runner.signoff.judge import Judgement, judge
from runner.signoff.tables import Page

SUMS = "SHA256SUMS"
INPUTS = "inputs"
PAGE = "signoff.md"
STATEMENT = "statement.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a person asks for, by the files that they name."""

    runs: Sequence[Path]
    policy: str
    vllm: str | None
    matrix: Path | None
    """By default the one that the last of the runs was planned with."""
    waivers: Path | None
    since: Path | None
    at: datetime
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Derived:
    """What follows from the inputs: the decision, the page that says it, and the bytes of each file."""

    inputs: Inputs
    judgement: Judgement
    page: Page
    files: dict[str, bytes]


def decide(folder: Path, *, at: datetime | None = None) -> tuple[Inputs, Judgement]:
    """The decision that follows from the inputs, as of another time if one is given."""
    found = inputs.read(folder / INPUTS, at=at)
    return found, judge(found.policy, found.runs, found.request.at, found.since)


def derive(folder: Path) -> Derived:
    """Everything of a bundle but its inputs, made from them; UsageError where they contradict each other."""
    found, judgement = decide(folder)
    made = page.make(found, judgement)
    texts = {
        PAGE: markdown.render(made),
        "signoff.html": html.render(made),
        "signoff.json": json.dumps(record.make(found, judgement), indent=1) + "\n",
        STATEMENT: json.dumps(statement.make(found, judgement), indent=1) + "\n",
    }
    return Derived(
        inputs=found,
        judgement=judgement,
        page=made,
        files={name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()},
    )


def create(asked: Asked, out: Path | None) -> tuple[Path, Derived, str]:
    """Write a bundle, whole or not at all; gives where it is, what it says, and its digest."""
    request = _request(asked)
    where = out or asked.runs[0] / "signoff" / f"{asked.at:%Y%m%dT%H%M%SZ}-{Path(asked.policy).stem}"
    if where.exists() and (not where.is_dir() or any(where.iterdir())):
        raise UsageError(f"{where}: is there already: a sign-off is not written over, name another place with --out")
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=where.parent, prefix=f".{where.name}-") as holder:
            folder = Path(holder) / where.name
            _copy_inputs(asked, request, folder / INPUTS)
            made = derive(folder)
            for name, data in made.files.items():
                (folder / name).write_bytes(data)
            sums = sums_of(digests(folder))
            (folder / SUMS).write_bytes(sums)
            folder.rename(where)
    except OSError as error:
        raise MachineError(f"{where}: cannot be written ({error.strerror}): name another place with --out") from None
    return where, made, f"sha256:{hashlib.sha256(sums).hexdigest()}"


def _request(asked: Asked) -> Request:
    """What is asked for, checked by the files as they are called outside of a bundle, so that messages name those."""
    for run in asked.runs:
        sources.check(run)
    chart = matrix.load(asked.matrix or asked.runs[-1] / inputs.MATRIX)
    vllm = asked.vllm or _release(asked.runs)
    chart = inputs.with_candidate(chart, vllm, asked.runs)
    inputs.check_release(vllm, chart)
    policy.load(policy.find(asked.policy), chart, vllm, waivers=asked.waivers)
    if asked.since:
        inputs.check_since(results.read(asked.since))
    return Request(
        attnmatrix=__version__,
        at=asked.at,
        vllm=vllm,
        policy=Path(asked.policy).stem,
        runs=tuple(_id(run) for run in asked.runs),
        since=_id(asked.since) if asked.since else "",
        url=asked.url,
        format=inputs.FORMAT,
    )


def _release(runs: Sequence[Path]) -> str:
    """The one release that the runs are of."""
    found = list(dict.fromkeys(str(row.axes["vllm"]) for run in runs for row in results.read(run)))
    if len(found) != 1:
        raise UsageError(f"the runs are of vllm {', '.join(found) or '(nothing)'}: say with --vllm what is signed off")
    return found[0]


def _id(run: Path) -> str:
    """The run's own id, however its directory is called; else that name."""
    try:
        return rundir.asked(run).run_id
    except UsageError:
        return "/".join(run.resolve().parts[-2:])  # a workflow's merged runs are called alike


def _copy_inputs(asked: Asked, request: Request, folder: Path) -> None:
    folder.mkdir(parents=True)
    inputs.write_request(folder, request)
    shutil.copyfile(asked.matrix or asked.runs[-1] / inputs.MATRIX, folder / inputs.MATRIX)
    shutil.copyfile(policy.find(asked.policy), folder / inputs.POLICY)
    if asked.waivers:
        shutil.copyfile(asked.waivers, folder / inputs.WAIVERS)
    chart = matrix.load(folder / inputs.MATRIX)
    for number, (run, id_) in enumerate(zip(asked.runs, request.runs, strict=True), 1):
        _write_run(run, id_, folder / inputs.RUNS / str(number), chart, request.at.date())
    if asked.since:
        (folder / inputs.SINCE).mkdir()
        (folder / inputs.SINCE / results.NAME).write_text(results.to_json(results.read(asked.since)))


def _write_run(run: Path, id_: str, copy: Path, plain: matrix.Matrix, today: date) -> None:
    """The run's files as this version writes them, with the verdicts of this matrix on this day.

    Where the run was of this matrix, and nothing has expired since, these are the bytes that it has.
    """
    copy.mkdir(parents=True)
    plan = planning.from_json((run / inputs.PLAN).read_bytes())
    asked = {one.cell.axes.get("vllm") for one in plan.planned}
    if kept := tuple(one for one in candidates.kept(run) if one.name in asked):
        (copy / candidates.FILE).write_bytes(candidates.to_json(kept))
    chart = inputs.with_all_candidates(plain, copy)
    rows = results.read(run)
    planned = consistency.as_of_matrix(id_, plan.planned, chart)
    consistency.check_rows(id_, planned, rows, chart)
    (copy / inputs.PLAN).write_text(planning.to_json(planning.Plan(planned)))
    (copy / results.NAME).write_text(results.to_json(inputs.judged(id_, planned, rows, chart, today)))


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a bundle but the sums themselves, by its path."""
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files(folder) if name != SUMS}


def files(folder: Path) -> Iterator[str]:
    """The paths of all that is in a bundle and is no directory, in order."""
    return (
        str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()
    )


def sums_of(found: dict[str, str]) -> bytes:
    """The bytes of SHA256SUMS."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items())).encode()
