"""`runner ci tell|again`: what follows the end of a workflow run."""

import os
from pathlib import Path
from typing import Annotated

import typer

from runner import output
from runner.ci import step

Merged = Annotated[Path, typer.Argument(metavar="MERGED", help="What `runner ci gather` wrote in the run that ended.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(tell)
    app.command()(again)


def tell(
    merged: Merged = Path("merged"),
    pull: Annotated[
        int, typer.Option("--pull", envvar="PULL", metavar="NUMBER", min=0, help="Its run is this one.")
    ] = 0,
    sha: Annotated[str, typer.Option("--sha", envvar="SHA", metavar="SHA", help="The commit, all 40 digits.")] = "",
    result: Annotated[str, typer.Option("--result", envvar="RESULT", metavar="WORD", help="Of the job `gpu`.")] = "",
) -> None:
    """Keep one comment on a pull request that says how its run ended: the one of the event, or with --pull this one."""
    from runner.ci import api, ended, pulls, telling

    github = api.Api.here("GITHUB_TOKEN")
    server = os.environ.get("GITHUB_SERVER_URL") or "https://github.com"
    try:
        if pull:
            told = telling.Told(
                workflow=pulls.CONTEXT,
                pull=pull,
                sha=pulls.check_head(github, pull, sha),
                conclusion=result,
                url=telling.address(server, github, step.number("GITHUB_RUN_ID")),
                attempt=step.number("GITHUB_RUN_ATTEMPT"),
            )
        else:
            told = telling.of_pull_request(github, ended.ended_of(step.event()), server)
    except (telling.NoTarget, pulls.Declined) as error:
        output.emit(f"nothing is told: {error}")
        return
    output.emit(telling.tell(github, told, merged))


def again(merged: Merged = Path("merged")) -> None:
    """Run once more what failed of the run of the event, where a machine with a GPU was the trouble."""
    from runner.ci import again as repeating
    from runner.ci import api, ended, telling

    one = ended.ended_of(step.event())
    if why := repeating.not_ours(one, os.environ):
        output.emit(f"the run {one.id} is not run again: {why}")
        return
    if not (troubles := repeating.machine_troubles(telling.read(merged))):
        output.emit(f"the run {one.id} is not run again: no machine was the trouble")
        return
    output.emit("\n".join([*troubles, repeating.again(api.Api.here("GITHUB_TOKEN"), one)]))
