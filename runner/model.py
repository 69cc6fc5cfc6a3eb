"""The frozen types that the parts pass to each other; imports nothing of ours.

Everything that leaves the process (journal, results, worker messages) is one of these types, written and read back
through pydantic's TypeAdapter, so that what comes from outside is checked against the same definition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

AxisValue = str | int

ENVIRONMENT = (
    "vllm",
    "flashinfer",
    "torch",
    "candidate",
    "image_digest",
    "base_digest",
    "gpu",
    "driver",
    "machine",
    "recipe_digest",
    "hashes",
    "cases_digest",
)
"""What a result says of where it was obtained: versions, what a candidate is made of, Docker's id of the image and the
digest by which a registry gave its base, the GPU and its driver, the machine's name, the digest of what the environment
was built from, whether its packages were held to hashes, and the digest of the cases that ran."""


class Fault(StrEnum):
    """Whose fault a bad state is."""

    NONE = "none"
    PRODUCT = "product"
    HARNESS = "harness"
    MACHINE = "machine"


class State(StrEnum):
    """The outcome of a case or a cell, worst first: a cell's state is the first of its cases' in this order."""

    CRASH = "crash"
    OOM = "oom"
    TIMEOUT = "timeout"
    OVERFLOW = "overflow"
    FAIL = "fail"
    SUBSTITUTED = "substituted"
    MISSING = "missing"
    INFRA = "infra"
    NOT_RUN = "not_run"
    SKIPPED = "skipped"
    REFUSED = "refused"
    UNSUPPORTED = "unsupported"
    PASS = "pass"  # noqa: S105 - a state, not a password

    @property
    def fault(self) -> Fault:
        match self:
            case State.CRASH | State.OOM | State.TIMEOUT | State.OVERFLOW | State.FAIL:
                return Fault.PRODUCT
            case State.SUBSTITUTED | State.MISSING:
                return Fault.HARNESS
            case State.INFRA | State.NOT_RUN:
                return Fault.MACHINE
            case State.SKIPPED | State.REFUSED | State.UNSUPPORTED | State.PASS:
                return Fault.NONE

    @property
    def bad(self) -> bool:
        return self.fault is not Fault.NONE


class Verdict(StrEnum):
    """A state after the matrix' expectations were applied: the state itself, or one of the four at the top.

    `refused!` is a refusal whose reason no entry under `expect` names.
    """

    XFAIL = "xfail"
    XPASS = "xpass"
    FLAKY = "flaky"
    UNEXPECTED = "refused!"
    CRASH = "crash"
    OOM = "oom"
    TIMEOUT = "timeout"
    OVERFLOW = "overflow"
    FAIL = "fail"
    SUBSTITUTED = "substituted"
    MISSING = "missing"
    INFRA = "infra"
    NOT_RUN = "not_run"
    SKIPPED = "skipped"
    REFUSED = "refused"
    UNSUPPORTED = "unsupported"
    PASS = "pass"  # noqa: S105 - a verdict, not a password

    @property
    def fault(self) -> Fault:
        match self:
            case Verdict.XFAIL | Verdict.FLAKY:
                return Fault.NONE
            case Verdict.XPASS | Verdict.UNEXPECTED:
                return Fault.PRODUCT
            case _:
                return State(self.value).fault


class Evidence(StrEnum):
    """How a result was obtained; never mixed up, shown in every table."""

    DEVICE = "device"
    EMULATED = "emulated"
    INTERPRETED = "interpreted"
    CPU = "cpu"


class How(StrEnum):
    """How a buffer that is too small showed itself."""

    RAISED = "raised"
    RESIZED = "resized"
    SHORT = "short"
    SILENT = "silent"
    LATENT = "latent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """A named deployment shape: what a user gives vLLM on the command line.

    Lengths and counts are in tokens, sequences and heads; `block_size` is tokens per KV-cache page.
    """

    name: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    dtype: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One value per axis. `id` is public and stable and never parsed back; the values are beside it."""

    id: str
    axes: Mapping[str, AxisValue]
    labels: Mapping[str, str]
    load: Load
    unsupported: str = ""
    """Why a rule of the matrix excludes this cell; empty where none does."""


class CandidateKind(StrEnum):
    """How a candidate is given."""

    PATCH = "patch"
    CHECKOUT = "checkout"
    WHEEL = "wheel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A vLLM that is no release, under the name that it has on the vllm axis for one run."""

    name: str
    kind: CandidateKind
    path: str
    over: str
    """The release that a patch is for, whose built files a checkout gets, and whose other packages a wheel gets."""
    digest: str
    """Sixteen hex digits over the content of the patch, of the checkout's vllm/, or of the wheel."""
    why: str = ""
    """How this release was found; empty where the command line named it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.path} {self.digest} over {self.over}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """Cells that one environment can run: what a worker is fed from."""

    environment: str
    evidence: Evidence
    cells: tuple[Cell, ...]
    seed: int = 0
    """Of the random batches."""
    device: str = ""
    """UUID of the GPU that the worker holds; empty before one was leased."""

    @property
    def case(self) -> str:
        """What the cells judge, the same for all of an order: the cases that a worker imports."""
        return str(self.cells[0].axes.get("case", "metadata"))

    @property
    def arch(self) -> str:
        """Of the first cell; where the evidence is of a device, of all of them."""
        return str(self.cells[0].axes.get("arch", ""))

    @property
    def worker(self) -> tuple[str, str, str]:
        """Orders with the same can share a worker: a device, or interpreted kernels, have their own."""
        match self.evidence:
            case Evidence.DEVICE:
                return self.environment, self.case, f"{self.evidence} {self.arch}"
            case Evidence.INTERPRETED:
                return self.environment, self.case, self.evidence
            case _:
                return self.environment, self.case, ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """The batch given to vLLM: per request, tokens scheduled in this step and tokens in the sequence after it."""

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Overflow:
    """One named buffer that needs more entries than it has, and the smallest batch found that shows it."""

    buffer: str
    required: int
    allocated: int
    how: How
    batch: Batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Where an exception that decided a case came from: the last frame of vLLM that it went through."""

    exception: str
    """The name of its type."""
    words: str
    """Its own message, or the line of source that raised it where it has none."""
    file: str
    """Relative to where packages are installed, as `vllm/v1/worker/utils.py`."""
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """What one case said about one cell."""

    name: str
    state: State
    message: str = ""
    duration_s: float = 0.0
    overflow: tuple[Overflow, ...] = ()
    cause: Cause | None = None
    """Where in vLLM the exception behind `state` was raised; None where there was none, or none of vLLM's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """How a cell's process ended when it did not end well: one of the fields is set, or both that speak of time."""

    signal: str = ""
    exit_code: int = 0
    timed_out_after_s: float = 0.0
    silent_for_s: float = 0.0
    """How long it had said nothing, where that is why it was killed."""
    out_of_memory: bool = False
    worker: str = ""
    """How the workers ended that were given the cell, where it can end a worker and did so each time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """One row of results.json."""

    id: str
    axes: Mapping[str, AxisValue]
    state: State
    verdict: Verdict
    evidence: Evidence
    duration_s: float = 0.0
    cases: tuple[CaseResult, ...] = ()
    overflow: tuple[Overflow, ...] = ()
    reason: str = ""
    repro: str = ""
    known: str = ""
    """The link of the known issue that explains this verdict; empty where none does."""
    expired: str = ""
    """The links of known issues that speak of this cell and do not count any more; empty where there is none."""
    expected: str = ""
    """Why the matrix expects this refusal, as its entry under `expect` says; empty for anything else."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the names in ENVIRONMENT say; empty strings where there is nothing to say."""
    resolved: Mapping[str, Any] = field(default_factory=dict)
    """What vLLM chose by itself, by the names in docs/results.md."""
    reruns: tuple[State, ...] = ()
    """What the cell ended as each time it was run again (`--reruns`); empty where it was not."""
    ended_at: str = ""
    """When, in UTC, as ISO 8601 to the second; empty where it did not run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellOutcome:
    """What became of one cell, as raw facts; `outcome.of` turns them into a state and a reason.

    A cell that ran to its end and left neither a case nor a death is missing.
    """

    cell: Cell
    evidence: Evidence
    cases: tuple[CaseResult, ...] = ()
    death: Death | None = None
    log: str = ""
    """Where the last attempt's log is, relative to the run directory; empty where nothing was printed."""
    duration_s: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    resolved: Mapping[str, Any] = field(default_factory=dict)
    infra: str = ""
    """Why the machine could not run this cell; empty where it could."""
    not_run: bool = False
    attempts: int = 0
    """How many times the cell was given to a worker."""
    reruns: tuple[State, ...] = ()
    """What the same cell ended as when it was run again after product trouble; the first failure stays."""
    ended_at: str = ""
    """When, in UTC, as ISO 8601 to the second; empty where no worker was given it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStarted:
    """First entry of a journal: which run this is and what made it."""

    run_id: str
    argv: tuple[str, ...]
    versions: Mapping[str, str]
    planned: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerStarting:
    """A slot asks its engine for a worker; the imports take seconds."""

    slot: int
    environment: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReady:
    """A worker has imported everything and waits for cells."""

    slot: int
    environment: str
    versions: Mapping[str, str]
    import_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CellStarted:
    """A cell is about to be given to a worker; attempts count from 1."""

    slot: int
    cell: str
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseReported:
    """One case of a running cell has ended; another attempt at the cell makes it void."""

    slot: int
    cell: str
    case: CaseResult


@dataclass(frozen=True, kw_only=True, slots=True)
class CellFinished:
    """The last word about a cell: exactly one for each cell of every order."""

    outcome: CellOutcome


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFinished:
    """Last entry of a journal; one without it was cut off."""

    stopped: bool = False


Event = RunStarted | WorkerStarting | WorkerReady | CellStarted | CaseReported | CellFinished | RunFinished
"""What happens during a run, in order: what the journal keeps and the progress display shows."""
