"""Runs the cases on mutated code, inside an environment: imports vLLM once, then forks for each cell.

Told one JSON object per line, {"edits": [[where, old, new], ...], "cells": [...]}; answers each with one line,
{"verdicts": {cell id: {case: {"state", "how", "message"}}}} or {"error": "..."}.
"""

import ast
import gc
import importlib
import inspect
import json
import os
import select
import signal
import sys
import textwrap
import time
import traceback
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
CELL_S = 120.0
FAULT = 70  # exit code of a fork that failed for a reason of its own: no verdict


class DoesNotApply(Exception):
    """The source has changed: a mutant that changes nothing proves nothing."""


def mutate(where: str, changes: list[tuple[str, str]]) -> None:
    """Give `module:path.of.function` a changed body; whoever imported it by name before sees the change too."""
    module, _, path = where.partition(":")
    target: Any = importlib.import_module(module)
    owner = None
    for name in path.split("."):
        owner, target = target, getattr(target, name)
    function = inspect.unwrap(getattr(target, "__func__", target))
    lines, first = inspect.getsourcelines(function)
    source = textwrap.dedent("".join(lines))
    for old, new in changes:
        if not old:
            source = returning(source, new)
            continue
        if source.count(old) != 1:
            raise DoesNotApply(f"{where} holds {source.count(old)} times, not once: {old!r}")
        source = source.replace(old, new)
    # `super()` without arguments finds its class in a variable of the scope around the method.
    text = f"def _scope(__class__):\n{textwrap.indent(source, '    ')}\n    return {function.__name__}\n"
    # In the file and at the lines of the original: the cases go by both to find the statement that raised.
    text, file = "\n" * (first - 2) + text, inspect.getfile(function)
    scope: dict[str, Any] = {}
    exec(compile(text, file, "exec", dont_inherit=True), function.__globals__, scope)
    made = scope["_scope"](owner)
    code = inspect.unwrap(getattr(made, "__func__", made)).__code__
    if code.co_freevars != function.__code__.co_freevars:
        raise DoesNotApply(f"{where} uses super() in only one of its versions")
    function.__code__ = code


class _Returns(ast.NodeTransformer):
    """Each `return X` of one function gives what an expression makes of `value`, which is X."""

    def __init__(self, made: str) -> None:
        self.made, self.inside = made, False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if not self.inside:
            self.inside = True
            self.generic_visit(node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        call = ast.parse(f"(lambda value: {self.made})(None)", mode="eval").body
        assert isinstance(call, ast.Call)
        call.args = [node.value or ast.Constant(None)]
        return ast.Return(call)


def returning(source: str, made: str) -> str:
    """A function's source, with another value in the place of what it returns."""
    return ast.unparse(ast.fix_missing_locations(_Returns(made).visit(ast.parse(source)))) + "\n"


class Driver:
    """The pytest plugin: one collection, then requests until the input ends."""

    def __init__(self) -> None:
        self.input, self.output = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.reports: list[Any] = []

    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        early_config.attnmatrix_cell = None

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str]:
        return "", "", ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.reports.append(report)

    def pytest_runtestloop(self, session: Any) -> bool:
        gc.collect()
        gc.freeze()
        for line in self.input:
            request = json.loads(line)
            try:
                answer = {"verdicts": {cell["id"]: self.fork(session, request, cell) for cell in request["cells"]}}
            except DoesNotApply as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), file=self.output, flush=True)
        return True

    def fork(self, session: Any, request: dict[str, Any], cell: dict[str, Any]) -> dict[str, Any]:
        """The verdict of each case of one cell; of a process that died, only that."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            try:
                os.write(write, json.dumps(self.verdicts(session, request["edits"], cell)).encode())
            except BaseException:  # noqa: BLE001 - whatever it is, it is no verdict
                traceback.print_exc()
                os._exit(FAULT)
            os._exit(0)
        os.close(write)
        text, deadline = b"", time.monotonic() + CELL_S
        while select.select([read], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not (data := os.read(read, 1 << 16)):
                break
            text += data
        else:
            os.kill(pid, signal.SIGKILL)
        os.close(read)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == FAULT:
            raise DoesNotApply("the driver failed, standard error says how")
        found = json.loads(text or '{"the process": {"state": "crash", "how": [], "message": ""}}')
        if isinstance(found, str):
            raise DoesNotApply(found)
        return found

    def verdicts(self, session: Any, edits: list[list[str]], cell: dict[str, Any]) -> dict[str, Any] | str:
        from runner.worker import STATES, describe

        changes: dict[str, list[tuple[str, str]]] = {}
        for where, old, new in edits:
            changes.setdefault(where, []).append((old, new))
        try:
            for where, of_one in changes.items():
                mutate(where, of_one)
        except DoesNotApply as error:
            return str(error)
        session.config.attnmatrix_cell = cell
        found = {}
        items = [item for item in session.items if session.config.attnmatrix_applies(item, cell)]
        for item, following in zip(items, [*items[1:], None], strict=True):
            self.reports = []
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            parts = [describe(report) for report in self.reports]
            worst = min(parts, key=lambda part: STATES.index(part["state"]))
            how = sorted({f"{o['how']} {o['buffer']}" for part in parts for o in part.get("overflow") or ()})
            found[item.name] = {"state": worst["state"], "how": how, "message": worst["message"][:600]}
        return found


def main() -> None:
    sys.path[:] = [str(PROJECT), *(path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent)]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    driver = Driver()

    import pytest

    cases = PROJECT / "cases"
    options = "--import-mode=importlib --capture=no --tb=short --no-header --no-summary -q -p no:cacheprovider"
    pytest.main([*options.split(), f"-c{os.devnull}", f"--rootdir={cases}", str(cases)], plugins=[driver])
    os._exit(0)


if __name__ == "__main__":
    main()
