"""The one issue that a workflow keeps about evidence that no machine gave: opened, kept up to date, and closed."""

from collections.abc import Sequence

from runner.ci import gate
from runner.ci.api import Api
from runner.ci.gather import Came, Gathered
from runner.ci.jobs import Side
from runner.reports.markdown import code

WRITER = "github-actions[bot]"
"""Who writes with the token of a workflow: an issue of anybody else is never touched."""


def report(api: Api, found: Gathered, *, workflow: str, run: str) -> str:
    """Bring the issue to where things stand; gives what was done."""
    title = f"Evidence from GPUs is missing ({workflow})"
    mine = [
        one["number"]
        for one in api.open_issues()
        if one.get("title") == title
        and "pull_request" not in one
        and isinstance(one.get("user"), dict)
        and one["user"].get("login") == WRITER
        and isinstance(one.get("number"), int)
    ]
    number = mine[0] if mine else None
    absent = [came for came in found.came if came.job.side is Side.DEVICE and came.skipped]
    if absent:
        api.write_issue(number, title=title, body=body(absent, run))
        return f"{'updated' if mine else 'opened'}: {'; '.join(gate.missing(found))}"
    asked = any(came.job.side is Side.DEVICE for came in found.came)
    if number is not None and asked and not found.troubles:
        api.write_issue(number, state="closed", state_reason="completed")
        return "closed: no evidence is missing"
    return "no evidence is missing" if asked else "no evidence of a GPU was asked for"


def body(absent: Sequence[Came], run: str) -> str:
    """Words of results are shown as code: they mention nobody."""
    rows = "".join(
        f"| {code(came.job.name, in_table=True)} | {code(' '.join(came.job.runs_on), in_table=True)} "
        f"| {came.skipped:,} | {code(came.because, 300, in_table=True)} |\n"
        for came in absent
    )
    return (
        f"Seen last in {run}. What to do is in docs/self-hosted.md, under Troubleshooting.\n\n"
        f"| job | labels of the machine | cells | why |\n| --- | --- | ---: | --- |\n{rows}"
    )
