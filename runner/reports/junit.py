"""junit.xml: one test case for each cell, for CI systems that draw their own tables.

It is valid by junit-10.xsd of Jenkins' xUnit plugin, which knows no properties of a test case: evidence and environment
are in its output instead, and the evidence in each message. The type of a failure is the verdict, such as `overflow`.
"""

from collections.abc import Sequence

from junitparser import JUnitXml, TestSuite
from junitparser.junitparser import Error, Failure, Skipped
from junitparser.xunit2 import TestCase

from runner.model import CaseResult, CellResult, Fault, State, Verdict
from runner.reports import behind
from runner.reports.fields import raised
from runner.reports.findings import findings
from runner.reports.text import finite, one_line, plain

MESSAGE_LIMIT = 4000


def render(results: Sequence[CellResult], *, name: str = "attnmatrix") -> str:
    """Product trouble is a failure, machine and harness trouble an error, what is expected or not judged is skipped."""
    suite = TestSuite(one_line(name))
    for result in results:
        # The public method counts the whole suite again for each case.
        suite.append(_case(result))
    suite.update_statistics()
    suite.time = round(suite.time, 3)
    document = JUnitXml(one_line(name))
    document.append(suite)
    document.update_statistics()
    document.time = suite.time
    del document._elem.attrib["skipped"]  # which the schema has for a suite alone
    # A line for each cell: quoted text has no bare "<" in it.
    text = document.tostring().decode().replace("<testcase ", "\n<testcase ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(result: CellResult) -> TestCase:
    backend, arch = (one_line(str(result.axes.get(axis, "none"))) for axis in ("backend", "arch"))
    case = TestCase(one_line(result.id), f"{backend}.{arch}", round(finite(result.duration_s), 3))
    case.system_out = "\n".join(f"{one_line(key)}: {one_line(value)}" for key, value in _properties(result).items())
    said = f"{message(result)} ({result.evidence})"
    match result.verdict.fault:
        case Fault.PRODUCT:
            outcome: Failure | Error | Skipped = Failure(said, result.verdict.value)
            outcome.text = details(result)
            case.result = [outcome]
        case Fault.HARNESS | Fault.MACHINE:
            outcome = Error(said, result.verdict.value)
            outcome.text = details(result)
            case.result = [outcome]
        case Fault.NONE:
            if result.verdict is not Verdict.PASS:
                case.result = [Skipped(said, result.verdict.value)]
    return case


def message(result: CellResult) -> str:
    """Why a cell has its verdict, on one line: what is known and what it hides, or the reason and where it arose."""
    if result.verdict in {Verdict.XFAIL, Verdict.FLAKY}:
        known = "known" if result.verdict is Verdict.XFAIL else "known to come and go"
        hidden = behind.of(result)
        return f"{known}, {result.state}: {one_line(result.known)}" + (f"; {hidden}" if hidden else "")
    said = one_line(result.reason) or result.verdict.value
    if result.expected:
        return f"{said} (expected: {one_line(result.expected)})"
    cause = next((one.cause for one in findings(result) if one.state is result.state and one.cause), None)
    return f"{said}; raised {raised(cause)}" if cause else said


def _properties(result: CellResult) -> dict[str, str]:
    found = {"evidence": result.evidence.value, "state": result.state.value, "known": result.known}
    found["expired"] = result.expired
    found |= {f"environment.{key}": value for key, value in result.environment.items()}
    return {key: value for key, value in found.items() if value}


def details(result: CellResult) -> str:
    """The reason, the cases that did not hold, the overflows, and the command that shows it again; cut to a limit."""
    lines = [plain(result.reason)]
    lines += [_of_case(case) for case in result.cases if case.state.bad or case.state is State.REFUSED]
    lines += [f"{o.buffer}: required {o.required}, allocated {o.allocated}, {o.how}" for o in result.overflow]
    lines.append(result.repro)
    text = plain("\n".join(line for line in lines if line))
    return text if len(text) <= MESSAGE_LIMIT else text[:MESSAGE_LIMIT] + "\n…"


def _of_case(case: CaseResult) -> str:
    cause = f", raised {raised(case.cause)}" if case.cause else ""
    return f"{one_line(case.name)}: {case.state}{cause}"
