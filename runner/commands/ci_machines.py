"""`runner ci fit|admit|clean`: what a machine with GPUs asks before a job, and how it is left afterwards."""

import os
import syslog
from pathlib import Path
from typing import Annotated

import typer

from runner import output


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(fit)
    app.command()(admit)
    app.command()(clean)


def fit(
    arch: Annotated[str, typer.Option("--arch", metavar="ARCH", help="What it is there for, such as sm90.")],
) -> None:
    """On a GPU machine, before it asks for a job: 0 where it can run cells, else 3 and why."""
    from runner.ci import fitness

    troubles = fitness.unfit(arch)
    for trouble in troubles:
        output.note(trouble)
    raise typer.Exit(fitness.TROUBLE if troubles else 0)


def admit(
    repository: Annotated[list[str], typer.Option("--repository", metavar="OWNER/NAME", help="Whose jobs are taken.")],
    workflow: Annotated[
        list[str],
        typer.Option("--workflow", metavar="FILE@REF", help="A workflow, as matrix-gpu.yml@refs/heads/main."),
    ],
    work: Annotated[
        Path | None,
        typer.Option("--work", metavar="DIR", help="The _work folder of the Actions runner: emptied after a refusal."),
    ] = None,
) -> None:
    """On a GPU machine, before each job: 0 where it may run, else 3 and why. A refused job is ended.

    See docs/self-hosted.md.
    """
    from runner.ci import admission, eviction

    place = eviction.check(work) if work else None
    rules = admission.Rules(repositories=frozenset(repository), workflows=frozenset(workflow))
    try:
        output.emit(f"taken: {admission.admit(rules, os.environ)}")
    except admission.Refused as error:
        _tell(f"refused: {error}")
        eviction.evict(place, _tell)
        raise


def _tell(text: str) -> None:
    """To the job's log, which may be lost with the job, and to the machine's."""
    output.note(text)
    syslog.openlog("attnmatrix")
    syslog.syslog(syslog.LOG_WARNING, text)


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
