"""The steps of a job, in order: scripts by bash in fresh folders with the files that Actions provides, and actions."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.actions import job_worker, played
from tests.actions.expressions import Functions, Unknown, fill, holds, text_of
from tests.actions.github_own import NODE
from tests.actions.played import ActionFailed

if TYPE_CHECKING:
    from tests.actions.harness import Job

STEP_KEYS = {"id", "if", "name", "uses", "with", "run", "env", "shell"}
TO_TERM_S, TO_KILL_S = 7.5, 2.5
"""What a step has after SIGINT, and after SIGTERM, when a run is cancelled."""
SUMMARY_LIMIT = 1 << 20
MOST_ANNOTATIONS = 10
FILES = ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")


class Steps:
    """The steps of one job, or of one composite action in it."""

    def __init__(self, job: "Job", env: Mapping[str, Any], secrets: Mapping[str, str], limit_s: float) -> None:
        self.job, self.secrets = job, secrets
        self.until = time.monotonic() + limit_s
        self.env = {key: text_of(value) for key, value in env.items()}
        self.path: list[str] = []
        self.results: dict[str, dict[str, Any]] = {}
        self.failed = False
        lives_on = job.machine is not None and not job.machine.hosted
        self.temp = job.machine_folder / "_temp" if lives_on else job.folder / "temp"

    def execute(self, steps: list[dict[str, Any]]) -> str:
        """The conclusion of the job."""
        shutil.rmtree(self.temp, ignore_errors=True)  # as the Actions runner does before each job
        diagnostics = self.job.folder / "diag"
        for folder in (self.temp, diagnostics, self.job.workspace, self.job.folder / "home"):
            folder.mkdir(parents=True, exist_ok=True)
        self.fetch(steps)
        machine = self.job.machine
        assert machine
        env = {"PATH": "/usr/bin:/bin", **self.env, **self.variables()}  # a workflow's own variables may be there
        with job_worker.asked(machine.hook, diagnostics, env) as found:
            self.job.log += found.log
            self.failed = not found.admitted
            if not found.worker_lives:
                self.job.log += "The self-hosted runner lost its worker: the job ends\n"
                return "failure"
            for pre in self.scripts_of(steps, "pre"):
                self.javascript(pre)
            self.every(steps, self.job.contexts, None)
            for post in reversed(self.scripts_of(steps, "post")):
                self.javascript(post)
        return "cancelled" if self.job.cancelled else "failure" if self.failed else "success"

    def fetch(self, steps: list[dict[str, Any]]) -> None:
        """GitHub fetches the actions of a job before its first step, the hook: they lie on the machine then."""
        for uses in self.used(steps):
            if tree := self.own_action(uses):
                kept = self.job.machine_folder / "_actions" / re.sub(r"[^\w.-]", "_", uses)
                shutil.copytree(tree, kept, dirs_exist_ok=True, symlinks=True)

    def used(self, steps: list[dict[str, Any]]) -> Iterator[str]:
        """The actions of these steps, and those that composite ones of ours use in turn."""
        for step in steps:
            if uses := step.get("uses"):
                yield uses
                if (tree := self.own_action(uses)) and (tree / "action.yml").exists():
                    runs = yaml.load((tree / "action.yml").read_text(), Loader=yaml.BaseLoader)["runs"]
                    yield from self.used(runs.get("steps", []))

    def scripts_of(self, steps: list[dict[str, Any]], stage: str) -> list[Path]:
        """The `pre:` or `post:` scripts of JavaScript actions, whose conditions are always() unless they say more."""
        found = []
        for uses in self.used(steps):
            if tree := self.own_action(uses):
                runs = yaml.load((tree / "action.yml").read_text(), Loader=yaml.BaseLoader)["runs"]
                if f"{stage}-if" in runs:
                    raise Unknown(f"{stage}-if of {uses}")
                found += [tree / runs[stage]] if stage in runs else []
        return found

    def javascript(self, script: Path) -> bool:
        """A script of an action, by Node; whatever it is, it runs as the machine's user."""
        code, output = self.process([str(NODE), str(script)], {**self.variables(), "PATH": os.environ["PATH"]})
        self.job.log += f"$ node {script.name}\n{output}"
        self.failed = self.failed or code != 0
        return code == 0

    def every(self, steps: list[dict[str, Any]], contexts: Mapping[str, Any], action: Path | None) -> None:
        """With `action`, of the composite action there."""
        results: dict[str, dict[str, Any]] = {}
        if action is None:
            self.results = results
        machine = self.job.machine
        assert machine
        about = {"environment": "github-hosted" if machine.hosted else "self-hosted", "temp": str(self.temp)}
        for step in steps:
            if unknown := set(step) - STEP_KEYS:
                raise Unknown(f"step: {sorted(unknown)}")
            here = {**contexts, "steps": results, "env": self.env, "runner": about}
            if not holds(step.get("if"), here, self.functions()):
                continue
            if action is None:  # secrets are not for conditions, nor for composite actions
                here["secrets"] = self.secrets
            outputs, well = self.one(step, here, action)
            self.failed = self.failed or not well
            if "id" in step:
                word = "success" if well else "failure"
                results[step["id"]] = {"outputs": outputs, "outcome": word, "conclusion": word}
        if action is not None:
            self.composite_results = results

    def functions(self) -> Functions:
        return {
            "success": lambda: not self.failed and not self.job.cancelled,
            "failure": lambda: self.failed,
            "always": lambda: True,
            "cancelled": lambda: self.job.cancelled,
            "hashFiles": lambda pattern: "x" if any(self.job.workspace.glob(pattern)) else "",
        }

    def one(
        self, step: dict[str, Any], contexts: Mapping[str, Any], action: Path | None
    ) -> tuple[dict[str, str], bool]:
        env = {key: text_of(value) for key, value in fill(step.get("env", {}), contexts, self.functions()).items()}
        if "run" in step:
            return self.script(step, env, action)
        given = fill(step.get("with", {}), contexts, self.functions())
        if tree := self.own_action(step["uses"]):
            return self.composite(step["uses"], tree, given)
        try:
            return played.play(step["uses"], given, self.job), True
        except ActionFailed as error:
            self.job.log += f"{error}\n"
            return {}, False

    def own_action(self, uses: str) -> Path | None:
        """Where the files of an action of ours are: of the commit that runs, or of one that is named."""
        if uses.startswith("$/"):
            return self.job.run.tree / uses.removeprefix("$/")
        match = re.fullmatch(r"([\w.-]+/[\w.-]+)/([\w./-]+)@([0-9a-f]{40})", uses)
        if not match or (match[1], match[3]) not in self.job.run.github.trees:
            return None
        return self.job.run.github.trees[match[1], match[3]] / match[2]

    def composite(self, uses: str, tree: Path, given: Mapping[str, Any]) -> tuple[dict[str, str], bool]:
        document = yaml.load((tree / "action.yml").read_text(), Loader=yaml.BaseLoader)
        runs = document["runs"]
        if re.fullmatch(r"node\d+", runs["using"]):
            return {}, self.javascript(tree / runs["main"])
        if runs["using"] != "composite":
            raise Unknown(f"{uses} is no composite action")
        declared = document.get("inputs", {})
        if unknown := set(given) - set(declared):
            raise Unknown(f"{uses} has no inputs {sorted(unknown)}")
        inputs = {name: text_of(given.get(name, one.get("default", ""))) for name, one in declared.items()}
        before, self.failed = self.failed, False
        contexts = {"github": self.job.contexts["github"], "inputs": inputs}
        self.every(document["runs"]["steps"], contexts, tree)
        well, self.failed = not self.failed, before or self.failed
        values = {name: one["value"] for name, one in document.get("outputs", {}).items()}
        return fill(values, {**contexts, "steps": self.composite_results}, self.functions()), well

    def variables(self) -> dict[str, str]:
        """The default variables; no step can set them otherwise."""
        run, machine = self.job.run, self.job.machine
        assert machine
        event = self.job.folder / "event.json"
        event.write_text(json.dumps(run.event.payload))
        return {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": run.github.api_url,
            "GITHUB_EVENT_NAME": run.event.name,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_REF": run.event.ref,
            "GITHUB_REF_NAME": run.event.ref.removeprefix("refs/heads/").removeprefix("refs/pull/"),
            "GITHUB_REF_PROTECTED": "true" if run.event.ref in run.github.protected else "false",
            "GITHUB_REPOSITORY": run.github.repository,
            "GITHUB_RUN_ATTEMPT": str(run.attempt),
            "GITHUB_RUN_ID": str(run.number),
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_SHA": run.sha,
            "GITHUB_WORKFLOW": run.name,
            "GITHUB_WORKFLOW_REF": f"{run.github.repository}/.github/workflows/{run.workflow}@{run.event.ref}",
            "GITHUB_WORKSPACE": str(self.job.workspace),
            "RUNNER_ENVIRONMENT": "github-hosted" if machine.hosted else "self-hosted",
            "RUNNER_TEMP": str(self.temp),
        }

    def script(self, step: dict[str, Any], env: dict[str, str], action: Path | None) -> tuple[dict[str, str], bool]:
        if action and step.get("shell") != "bash":
            raise Unknown("a step of a composite action names its shell")
        number = len(self.job.seen_by_steps)
        files = {name: self.temp / f"{name.lower()}{number}" for name in FILES}
        for path in files.values():
            path.touch()
        script = self.temp / f"step{number}.sh"
        script.write_text(step["run"])
        machine = self.job.machine
        assert machine
        variables = {
            "HOME": str(self.job.folder / "home"),
            "LANG": "C.UTF-8",
            # No daemon: what a test cleans must not be somebody's image.
            "DOCKER_HOST": "unix:///nowhere/docker.sock",
            **machine.env,
            **self.env,
            **env,
            **self.variables(),
            **{name: str(path) for name, path in files.items()},
            **({"GITHUB_ACTION_PATH": str(action)} if action else {}),
        }
        places = [*self.path, str(self.job.run.github.bin), "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        variables["PATH"] = os.pathsep.join(places)
        self.job.seen_by_steps.append("\n".join(f"{key}={value}" for key, value in variables.items()))
        options = ["--noprofile", "--norc", "-eo", "pipefail"] if step.get("shell") == "bash" else ["-e"]
        code, output = self.process(["bash", *options, str(script)], variables)
        self.job.log += f"$ {step['run']}\n{output}"
        self.take_commands(output)
        self.path[:0] = files["GITHUB_PATH"].read_text().split("\n")[:-1]
        self.env.update(pairs(files["GITHUB_ENV"].read_text()))
        summary = files["GITHUB_STEP_SUMMARY"].read_text()
        assert len(summary.encode()) <= SUMMARY_LIMIT, "GitHub would drop the summary"
        self.job.summary += summary
        return pairs(files["GITHUB_OUTPUT"].read_text()), code == 0

    def process(self, command: list[str], env: dict[str, str]) -> tuple[int, str]:
        log = self.temp / "log"
        with log.open("wb") as file:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env,
                cwd=self.job.workspace, start_new_session=True,
            )  # fmt: skip
            run = self.job.run
            while started.poll() is None:
                time.sleep(0.01)
                if run.cancel_when and not run.cancelled and run.cancel_when(self.job):
                    run.cancelled = self.job.cancelled = True
                    cancel(started)
                elif time.monotonic() > self.until and not self.job.timed_out:
                    # The job is cancelled, as the server does it to a job that ran too long; the run is not.
                    self.job.timed_out = self.job.cancelled = True
                    cancel(started)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # what a step leaves in its group ends with it
        return started.returncode, log.read_text(errors="replace")

    def take_commands(self, output: str) -> None:
        """Annotations; between stop-commands and its token nothing is one."""
        stopped = ""
        for line in output.splitlines():
            text = line.strip()
            if stopped:
                stopped = "" if text == f"::{stopped}::" else stopped
            elif match := re.fullmatch(r"::stop-commands::(\S+)", text):
                stopped = match[1]
            elif re.match(r"::(error|warning|notice)[ :]", text):
                self.job.annotations.append(text)
            elif re.match(r"::(?!group::|endgroup::|debug::)[a-z-]+( [^:]*)?::", text):
                raise Unknown(f"the workflow command {text!r}")


def cancel(process: "subprocess.Popen[bytes]") -> None:
    """SIGINT, SIGTERM, SIGKILL, to the process that was started and to no other."""
    for number, patience in ((signal.SIGINT, TO_TERM_S), (signal.SIGTERM, TO_KILL_S), (signal.SIGKILL, None)):
        process.send_signal(number)
        try:
            process.wait(patience)
            return
        except subprocess.TimeoutExpired:
            continue


def pairs(text: str) -> dict[str, str]:
    """`name=value` lines, and `name<<END` to `END` for values of several."""
    found, lines = {}, iter(text.splitlines())
    for line in lines:
        if match := re.fullmatch(r"([^=<]+)<<(\S+)", line):
            value = []
            while (one := next(lines)) != match[2]:
                value.append(one)
            found[match[1]] = "\n".join(value)
        elif "=" in line:
            key, _, value_ = line.partition("=")
            found[key] = value_
        elif line:
            raise Unknown(f"a line of an environment file: {line!r}")
    return found
