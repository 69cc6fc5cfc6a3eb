"""Runs our workflows on this machine, as GitHub Actions would: events, jobs, matrices, steps, artifacts, cancelling.

Sources: docs.github.com, "Workflow syntax for GitHub Actions", "Contexts", "Variables", "Canceling a workflow run",
"Re-running workflows and jobs", "Reusing workflow configurations". What is not known here is an error (Unknown).
Jobs run one after another, in the order of the file among those that are ready.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.actions import valid
from tests.actions.expressions import Functions, Unknown, fill, holds, number_of
from tests.actions.steps import Steps
from tests.actions.valid import needs_of

WORKFLOW_KEYS = {"name", "run-name", "on", "permissions", "concurrency", "env", "jobs"}
JOB_KEYS = {
    "name", "needs", "if", "runs-on", "strategy", "timeout-minutes", "permissions", "outputs", "env", "steps",
    "uses", "with", "secrets", "concurrency",
}  # fmt: skip
STRENGTH = {"none": 0, "read": 1, "write": 2}
ENDED = {"success", "skipped"}


@dataclass
class Machine:
    """Something that takes jobs; a hosted one is new for each."""

    name: str
    labels: frozenset[str]
    online: bool = True
    busy: bool = False
    """It runs another job for as long as a story says so; what asks for it is queued."""
    hosted: bool = False
    hook: Path | None = None
    """A script that the machine asks before each job."""
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Event:
    """What happened: GitHub writes it, nobody else can."""

    name: str
    sha: str
    """What runs: of a pull request the test merge commit, whose parents are the base and the head."""
    ref: str
    payload: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    from_fork: bool = False
    """Then there are no secrets, and the token reads."""


@dataclass
class GitHub:
    """A repository with its machines, secrets and runs."""

    folder: Path
    repository: str
    bin: Path
    environments: Path
    api_url: str = ""
    trees: dict[tuple[str, str], Path] = field(default_factory=dict)
    """What is checked out of a repository at a commit."""
    machines: list[Machine] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    vars: dict[str, str] = field(default_factory=dict)
    runs: dict[int, "Run"] = field(default_factory=dict)
    cache_keys: list[str] = field(default_factory=list)
    rights: dict[str, str] = field(default_factory=dict)
    """What an account may do in the repository; none where it is not named."""
    heads: dict[int, str] = field(default_factory=dict)
    """The newest commit of each open pull request."""
    protected: frozenset[str] = frozenset({"refs/heads/main"})
    """Refs with a rule that protects them."""
    issues: list[dict[str, Any]] = field(default_factory=list)
    """As the API has them."""
    comments: list[tuple[int, str]] = field(default_factory=list)
    """What was answered, by pull request."""
    statuses: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Of commits: commit, context, state, address."""
    asked: list[Callable[..., "Run"]] = field(default_factory=list)
    """What the API was asked to start: it begins after the answer, when a story says `go_on`."""
    releases: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By tag, their files by name."""
    lists_only_what_ran_again: bool = False
    """Whether the jobs of a later attempt are only those that ran in it: GitHub's documentation leaves it open."""
    dies: frozenset[str] = frozenset()
    """Of each new run, jobs whose machine is lost: what a story does not look at need not run."""
    minute_s: float = 60.0
    """Seconds that a minute of `timeout-minutes` takes: a story may be in a hurry."""

    def trigger(self, workflow: str, event: Event, cancel_when: Callable[["Job"], bool] | None = None) -> "Run":
        """Run a workflow of the commit that the event is of, to its end."""
        number = len(self.runs) + 1
        place = self.folder / f"run{number}"
        run = Run(self, number, workflow, event, place, cancel_when=cancel_when, dies=self.dies)
        self.runs[number] = run
        if self._may_start(run):
            run.execute()
        return run

    def go_on(self, cancel_when: Callable[["Job"], bool] | None = None) -> "Run":
        """Begin what the API was asked to start."""
        return self.asked.pop(0)(cancel_when)

    def _may_start(self, run: "Run") -> bool:
        """By its concurrency group: an older run in it is cancelled, or this one waits and takes the place of another
        that waits. Source: docs.github.com, "Control the concurrency of workflows and jobs"."""
        if (mine := run.concurrency) is None:
            return True
        group, cancels = mine
        others = [one for one in self.runs.values() if one is not run and (one.concurrency or ("",))[0] == group]
        for one in others:
            if one.pending:
                one.pending, one.cancelled = False, True
            elif one.in_progress and cancels:
                one.cancel()
        run.pending = any(one.in_progress for one in others)
        return not run.pending


@dataclass
class Job:
    """One job of one attempt; its status and conclusion are GitHub's words."""

    run: "Run"
    key: str
    name: str
    machine: Machine | None
    permissions: dict[str, str]
    contexts: dict[str, Any]
    folder: Path
    status: str = "queued"
    conclusion: str | None = None
    outputs: dict[str, str] = field(default_factory=dict)
    checked_out: list[tuple[str, str]] = field(default_factory=list)
    log: str = ""
    summary: str = ""
    annotations: list[str] = field(default_factory=list)
    seen_by_steps: list[str] = field(default_factory=list)
    """The environment of each `run:`, as text."""
    cancelled: bool = False
    attempt: int = 1
    """Of the run: the one in which it was made."""
    timed_out: bool = False

    @property
    def machine_folder(self) -> Path:
        """Where the Actions runner of the machine keeps its work; on a machine that lives on, the same for each job."""
        if self.machine and not self.machine.hosted:
            return self.run.github.folder / "machines" / self.machine.name / "_work"
        return self.folder

    @property
    def workspace(self) -> Path:
        return self.machine_folder / "workspace"


@dataclass
class Run:
    """A workflow run: its attempts share artifacts."""

    github: GitHub
    number: int
    workflow: str
    event: Event
    folder: Path
    attempt: int = 1
    cancel_when: Callable[[Job], bool] | None = None
    cancelled: bool = False
    artifacts: dict[str, Path] = field(default_factory=dict)
    attested: list[str] = field(default_factory=list)
    kept_days: dict[str, int] = field(default_factory=dict)
    """Of artifacts that say so."""
    tokens: dict[str, dict[str, str]] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    """Of the newest attempt, by name; those that were not run again are still there."""
    again: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    """Jobs that wait for a machine, and all that need them: the run is in progress as long as there is one."""
    alone: str = ""
    """The one job that this attempt runs again, with what needs it; empty where all that is red is."""
    afresh: bool = False
    """Whether this attempt runs everything again."""
    dies: frozenset[str] = frozenset()
    """Jobs whose machine is lost when their steps begin: the job fails, and nothing is uploaded."""
    pending: bool = False
    """Whether it waits for another run of its concurrency group."""
    expired: bool = False
    """Whether its queued jobs have waited for a day."""

    @property
    def sha(self) -> str:
        return self.event.sha

    @property
    def all_jobs(self) -> list[Job]:
        return list(self.jobs.values())

    def job(self, name: str) -> Job:
        (found,) = [job for job in self.all_jobs if job.name == name]
        return found

    @property
    def name(self) -> str:
        """As the workflow says, or its file."""
        file = f".github/workflows/{self.workflow}"
        return str(load(self.tree / file).get("name", file))

    @property
    def title(self) -> str:
        """As `run-name` says."""
        document = load(self.tree / ".github/workflows" / self.workflow)
        contexts = {"github": self.context, "inputs": self._inputs(document)}
        return str(fill(document.get("run-name", self.workflow), contexts, {}))

    @property
    def in_progress(self) -> bool:
        return bool(self.waiting)

    @property
    def concurrency(self) -> tuple[str, bool] | None:
        """The group of the workflow, and whether a newer run cancels an older one."""
        document = load(self.tree / ".github/workflows" / self.workflow)
        if "concurrency" not in document:
            return None
        contexts = {"github": self.context, "inputs": self._inputs(document), "vars": self.visible_vars}
        found = fill(document["concurrency"], contexts, {})
        found = {"group": found} if isinstance(found, str) else found
        if unknown := set(found) - {"group", "cancel-in-progress"}:
            raise Unknown(f"concurrency: {sorted(unknown)}")
        return str(found["group"]).lower(), str(found.get("cancel-in-progress", "false")).lower() == "true"

    @property
    def visible_vars(self) -> dict[str, str]:
        """Variables are not passed to a workflow that a pull request of a fork triggers (GitHub's documentation)."""
        return {} if self.event.from_fork else self.github.vars

    def after_a_day(self) -> None:
        """GitHub fails a job that was queued for 24 hours; then the run goes on."""
        self.expired = True
        self.execute()

    def machine_is_back(self) -> None:
        """A machine came online: queued jobs are taken, and the run goes on."""
        self.execute()

    def cancel(self) -> None:
        """What has not ended is cancelled; jobs with `always()` run."""
        self.cancelled = True
        self.execute()

    def execute(self) -> None:
        self.waiting = set()
        path = self.tree / ".github/workflows" / self.workflow
        document = load(path)
        if self.event.name not in triggers(document):
            raise Unknown(f"{self.workflow} does not listen to {self.event.name}")
        secrets = {} if self.event.from_fork else self.github.secrets
        Level(self, document, "", self._inputs(document), secrets, None).execute()

    def rerun_failed(self) -> None:
        """Another attempt: what did not end well, and what needs it."""
        self._rerun()

    def rerun_all(self) -> None:
        """Another attempt at everything."""
        self._rerun(afresh=True)

    def rerun_job(self, name: str) -> None:
        """Another attempt at one job, and at what needs it; all else stays, however it came out."""
        self._rerun(alone=self.job(name).key)

    def _rerun(self, *, alone: str = "", afresh: bool = False) -> None:
        if self.in_progress:
            raise Unknown("GitHub runs nothing again while the run is in progress")
        self.attempt, self.cancelled, self.again, self.expired = self.attempt + 1, False, set(), False
        self.alone, self.afresh = alone, afresh
        self.execute()

    @property
    def tree(self) -> Path:
        return self.github.trees[self.github.repository, self.sha]

    @property
    def context(self) -> dict[str, Any]:
        """The context `github`."""
        return {
            "repository": self.github.repository,
            "sha": self.sha,
            "ref": self.event.ref,
            "run_id": self.number,
            "run_attempt": self.attempt,
            "event_name": self.event.name,
            "event": self.event.payload,
            "server_url": "https://github.com",
        }

    def _inputs(self, document: dict[str, Any]) -> dict[str, Any]:
        on = triggers(document)[self.event.name]
        declared = on.get("inputs", {}) if isinstance(on, dict) else {}  # a schedule has none
        return with_defaults(self.workflow, declared, self.event.inputs)


def load(path: Path) -> dict[str, Any]:
    text = path.read_text()
    valid.refuse(path.name, text)
    return read(path.name, text)


def read(name: str, text: str) -> dict[str, Any]:
    """A workflow that GitHub takes, as far as it is known here; all values are texts."""
    document = yaml.load(text, Loader=yaml.BaseLoader)
    if unknown := set(document) - WORKFLOW_KEYS:
        raise Unknown(f"{name}: {sorted(unknown)}")
    return document


def triggers(document: dict[str, Any]) -> dict[str, Any]:
    on = document["on"]
    return {on: None} if isinstance(on, str) else dict.fromkeys(on) if isinstance(on, list) else on


def with_defaults(what: str, declared: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs, checked against those that are declared."""
    if unknown := set(given) - set(declared):
        raise Unknown(f"{what} has no inputs {sorted(unknown)}")
    for name, one in declared.items():
        if one.get("required") == "true" and name not in given:
            raise Unknown(f"{what} needs the input {name}")
    return {
        name: typed(given.get(name, one.get("default", "")), one.get("type", "string"))
        for name, one in declared.items()
    }


def typed(value: Any, kind: str) -> Any:
    """The file is read as text; a boolean input is a boolean in expressions, and a number is one."""
    if kind == "boolean":
        return value if isinstance(value, bool) else value == "true"
    return number_of(value) if kind == "number" else value


class Level:
    """A workflow, or one that it calls; `granted` is what the caller's job lets it do."""

    def __init__(
        self,
        run: Run,
        document: dict[str, Any],
        prefix: str,
        inputs: dict[str, Any],
        secrets: Mapping[str, str],
        granted: dict[str, str] | None,
        *,
        again: bool = False,
    ) -> None:
        self.again = again
        """Whether something that the caller's job needs ran again, so that all of this does."""
        self.run, self.document, self.prefix, self.granted = run, document, prefix, granted
        self.base = {"github": run.context, "vars": run.visible_vars, "inputs": inputs}
        self.secrets = secrets
        self.results: dict[str, dict[str, Any]] = {}

    def execute(self) -> str | None:
        """Run all jobs; success, or else the worst of their results; None while one waits for its machine.

        A caller waits until all jobs of what it calls have ended, and a job until all that it needs have.
        """
        left, stuck = dict(self.document["jobs"]), set[str]()
        while left:
            ready = [id_ for id_, job in left.items() if all(need in self.results for need in needs_of(job))]
            if not ready:
                self.run.waiting |= {f"{self.prefix}{id_}" for id_ in (*stuck, *left)}
                return None
            id_ = ready[0]
            found = self.one(id_, left.pop(id_))
            if found is None:
                stuck.add(id_)
            else:
                self.results[id_] = found
        if stuck:
            self.run.waiting |= {f"{self.prefix}{id_}" for id_ in stuck}
            return None
        found_results = {one["result"] for one in self.results.values()}
        return next((word for word in ("failure", "cancelled") if word in found_results), "success")

    def one(self, id_: str, job: dict[str, Any]) -> dict[str, Any] | None:
        """None where it waits for a machine for ever."""
        if unknown := set(job) - JOB_KEYS:
            raise Unknown(f"job {id_}: {sorted(unknown)}")
        needs = {need: self.results[need] for need in needs_of(job)}
        contexts = {**self.base, "needs": needs}
        functions = self.functions(needs)
        key = f"{self.prefix}{id_}"
        if "uses" not in job and self.may_stay(key, needs_of(job)):
            return self.kept(key)
        if "uses" not in job:
            self.run.again.add(key)
        if not holds(job.get("if"), contexts, functions):
            if "uses" not in job:
                self.skip(key, id_, contexts)
            return {"result": "skipped", "outputs": {}}
        if "uses" in job:
            found = self.call(id_, job, contexts, functions)
            if any(one.startswith(f"{key}/") for one in self.run.again):
                self.run.again.add(key)
            return found
        return self.instances(key, id_, job, contexts, functions)

    def functions(self, needs: Mapping[str, Any]) -> Functions:
        results = [need["result"] for need in needs.values()]
        return {
            "success": lambda: not self.run.cancelled and all(result == "success" for result in results),
            "failure": lambda: "failure" in results,
            "always": lambda: True,
            "cancelled": lambda: self.run.cancelled,
        }

    def may_stay(self, key: str, needs: list[str]) -> bool:
        mine = [job for job in self.run.jobs.values() if job.key == key]
        if not mine or self.run.attempt == 1 or self.run.afresh or self.again or self.ran_again(needs):
            return False
        if self.run.alone:
            return key != self.run.alone
        return all(job.conclusion in ENDED for job in mine)

    def ran_again(self, needs: list[str]) -> bool:
        return any(f"{self.prefix}{need}" in self.run.again for need in needs)

    def kept(self, key: str) -> dict[str, Any]:
        mine = [job for job in self.run.jobs.values() if job.key == key]
        words = [job.conclusion for job in mine]
        result = next((word for word in ("failure", "cancelled") if word in words), mine[-1].conclusion)
        return {"result": result, "outputs": mine[-1].outputs}

    def skip(self, key: str, id_: str, contexts: dict[str, Any]) -> None:
        name = f"{self.name_prefix}{id_}"
        job = Job(self.run, key, name, None, {}, contexts, self.run.folder, status="completed", conclusion="skipped",
                  attempt=self.run.attempt)  # fmt: skip
        self.run.jobs[name] = job

    @property
    def name_prefix(self) -> str:
        return self.prefix.replace("/", " / ")

    def call(
        self, id_: str, job: dict[str, Any], contexts: dict[str, Any], functions: Functions
    ) -> dict[str, Any] | None:
        """How it came out, with what it gives its caller; None while a job in it waits for its machine."""
        uses = job["uses"]
        if not uses.startswith("$/.github/workflows/"):
            raise Unknown(f"the workflow {uses}")
        document = load(self.run.tree / uses.removeprefix("$/"))
        declared = triggers(document)["workflow_call"] or {}
        valid.refuse_call(self.run.workflow, job, declared)
        given = fill(job.get("with", {}), contexts, functions)
        inputs = with_defaults(uses, declared.get("inputs", {}), given)
        secrets = fill(job.get("secrets", {}), {**contexts, "secrets": self.secrets}, functions)
        granted = self.permissions(job)
        again = self.again or self.ran_again(needs_of(job))
        level = Level(self.run, document, f"{self.prefix}{id_}/", inputs, secrets, granted, again=again)
        result = level.execute()
        if result is None:
            return None
        values = {name: one["value"] for name, one in declared.get("outputs", {}).items()}
        return {"result": result, "outputs": fill(values, {**level.base, "jobs": level.results}, {})}

    def permissions(self, job: dict[str, Any]) -> dict[str, str]:
        """Of the job's token; a called workflow cannot have more than its caller lets it: GitHub does not start it."""
        own = job.get("permissions", self.document.get("permissions"))
        if not isinstance(own, dict):
            raise Unknown("permissions are to be named for each job")
        for name, wanted in own.items():
            if self.granted is not None and STRENGTH[wanted] > STRENGTH[self.granted.get(name, "none")]:
                raise Unknown(f"the caller grants {name}: {self.granted.get(name, 'none')}, and {wanted} is wanted")
        return {n: "read" if self.run.event.from_fork and w == "write" else w for n, w in own.items()}

    def instances(
        self, key: str, id_: str, job: dict[str, Any], contexts: dict[str, Any], functions: Functions
    ) -> dict[str, Any] | None:
        """One for each entry of the matrix; those that ended well before are not run again."""
        strategy = fill(job.get("strategy", {}), contexts, functions)
        if (strategy and set(strategy) - {"fail-fast", "matrix"}) or set(strategy.get("matrix", {})) - {"include"}:
            raise Unknown(f"strategy of {id_}: {strategy}")
        rows = strategy["matrix"]["include"] if strategy else [None]
        assert 0 < len(rows) <= 256, "GitHub takes 1 to 256 jobs"
        results, outputs = [], {}
        for row in rows:
            here = contexts if row is None else {**contexts, "matrix": row}
            name = self.name_prefix + str(fill(job.get("name", id_), here, functions))
            before = self.run.jobs.get(name)
            if before and before.attempt == self.run.attempt and before.conclusion is not None:
                results.append(before.conclusion)  # it ended before the run went on
                outputs = before.outputs
                continue
            if self.run.attempt > 1 and before and before.conclusion == "success" and self.may_stay_instance(key, job):
                results.append("success")
                continue
            done = self.run_one(key, name, job, here, functions)
            results.append(done.conclusion)
            outputs = done.outputs
        if None in results:
            return None
        result = next((word for word in ("failure", "cancelled") if word in results), "success")
        return {"result": result, "outputs": outputs}

    def may_stay_instance(self, key: str, job: dict[str, Any]) -> bool:
        fresh = self.run.afresh or self.again or self.run.alone == key
        return not fresh and not self.ran_again(needs_of(job))

    def run_one(self, key: str, name: str, job: dict[str, Any], contexts: dict[str, Any], functions: Functions) -> Job:
        labels = fill(job["runs-on"], contexts, functions)
        labels = frozenset([labels] if isinstance(labels, str) else labels)
        machine = next((one for one in self.run.github.machines if labels <= one.labels and one.online), None)
        place = self.run.folder / f"attempt{self.run.attempt}" / name.replace("/", "_").replace(" ", "")
        permissions = self.permissions(job)
        token = f"token-{name}-{self.run.attempt}"
        self.run.tokens[token] = permissions
        contexts = {**contexts, "github": {**contexts["github"], "token": token}}
        with_secrets = {**contexts, "secrets": self.secrets}
        made = Job(self.run, key, name, machine, permissions, contexts, place, attempt=self.run.attempt)
        self.run.jobs[name] = made
        if machine is None or machine.busy:
            if self.run.expired or self.run.cancelled:
                made.status, made.conclusion = "completed", "cancelled" if self.run.cancelled else "failure"
            return made
        if self.run.cancelled and "always()" not in str(job.get("if")):
            made.status, made.conclusion = "completed", "cancelled"
            return made
        made.status = "in_progress"
        place.mkdir(parents=True)
        env = {**fill(self.document.get("env", {}), with_secrets, functions),
               **fill(job.get("env", {}), with_secrets, functions)}  # fmt: skip
        minutes = float(fill(job.get("timeout-minutes", "360"), contexts, functions))
        steps = Steps(made, env, self.secrets, minutes * self.run.github.minute_s)
        made.conclusion = "failure" if name in self.run.dies else steps.execute(job["steps"])
        outputs = fill(job.get("outputs", {}), {**contexts, "steps": steps.results}, functions)
        made.outputs = {key: "" if value is None else str(value) for key, value in outputs.items()}
        made.status = "completed"
        return made
