"""`runner ci comment|commit|status`: which commit of a pull request GPU machines run, who says so, how it went."""

from typing import Annotated

import typer

from runner import output
from runner.ci import step


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(comment)
    app.command()(commit)
    app.command()(status)


def comment() -> None:
    """Do what a comment on a pull request asks for, and answer there; 3 where it is not done."""
    from runner.ci import api, pulls

    github = api.Api.here("GITHUB_TOKEN")
    asked = pulls.comment_of(step.event())
    answers = f"issues/{asked.issue.number}/comments"
    try:
        done = pulls.obey(github, asked)
    except pulls.Declined as error:
        github.post(answers, {"body": f"Not done: {error}"})
        raise
    output.emit(done)
    github.post(answers, {"body": done})


def commit(
    pull: Annotated[int, typer.Option("--pull", envvar="PULL", metavar="NUMBER", min=1, help="The pull request.")],
    sha: Annotated[str, typer.Option("--sha", envvar="SHA", metavar="SHA", help="The commit, all 40 digits.")],
) -> None:
    """Check that a commit is the newest one of a pull request; tell the workflow, in GITHUB_OUTPUT, as `sha`."""
    from runner.ci import api, pulls

    found = pulls.check_head(api.Api.here("GITHUB_TOKEN"), pull, sha)
    step.append("GITHUB_OUTPUT", f"sha={found}\n")
    output.emit(f"pull request {pull} at {found}")


def status(
    sha: Annotated[str, typer.Option("--sha", envvar="SHA", metavar="SHA", help="The commit, all 40 digits.")],
    result: Annotated[str, typer.Option("--result", envvar="RESULT", metavar="WORD", help="Of the job `gpu`.")],
    url: Annotated[str, typer.Option("--url", envvar="URL", metavar="URL", help="Of the run.")] = "",
) -> None:
    """Show at a commit, and so at its pull request, how a run on machines with GPUs ended."""
    from runner.ci import api, pulls

    output.emit(f"{sha}: {pulls.show_status(api.Api.here('GITHUB_TOKEN'), sha, result, url)}")
