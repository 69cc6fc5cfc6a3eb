"""`runner ci admit|clean`: what a machine with GPUs asks before a job, and how it is left afterwards."""

import os
from pathlib import Path
from typing import Annotated

import typer

from runner import output


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(admit)
    app.command()(clean)


def admit(
    repository: Annotated[list[str], typer.Option("--repository", metavar="OWNER/NAME", help="Whose jobs are taken.")],
    maintainer: Annotated[
        list[str] | None,
        typer.Option("--maintainer", metavar="LOGIN", help="Who may put the label; by default all whom GitHub lets."),
    ] = None,
    label: Annotated[str, typer.Option("--label", metavar="NAME", help="The label that authorises a commit.")] = "gpu",
) -> None:
    """On a GPU machine, before each job: 0 where it may run, else 3 and why. See docs/self-hosted.md."""
    from runner.ci import admission

    rules = admission.Rules(repositories=frozenset(repository), maintainers=frozenset(maintainer or ()), label=label)
    output.emit(f"taken: {admission.admit(rules, os.environ)}")


def clean(
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where run directories are.")] = Path("runs"),
    days: Annotated[float, typer.Option("--days", min=0, help="Run directories older than this are removed.")] = 14.0,
    free: Annotated[
        float, typer.Option("--free", metavar="GB", min=0, help="Remove unused environments until this much is free.")
    ] = 0.0,
) -> None:
    """End what dead runs left, remove old run directories, and make room on the disk."""
    from runner.ci import cleaning

    cleaning.end_left_overs(output.note)
    cleaning.remove_runs(runs, days=days, say=output.note)
    cleaning.make_room(free, output.note)
