"""`runner env ...`: what cells run in, from what it is made, and what of that is held to a hash or a digest."""

from pathlib import Path
from typing import Annotated

import typer

from runner.commands import arguments
from runner.commands.arguments import Candidates, Engine, Json, MatrixFile
from runner.options import EngineName


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    env = typer.Typer(help="Build, list and remove what cells run in, and pin it.", no_args_is_help=True)
    app.add_typer(env, name="env")
    named = (("build", build), ("list", list_), ("clean", clean), ("hash", hash_), ("base", base), ("pin", pin))
    for name, command in named:
        env.command(name)(command)


def build(
    releases: Annotated[
        list[str] | None, typer.Argument(metavar="[VLLM]...", help="Releases; by default, those that a run takes.")
    ] = None,
    matrix_file: MatrixFile = None,
    candidate: Candidates = None,
    engine: Engine = EngineName.AUTO,
    cuda: Annotated[bool, typer.Option("--cuda", help="The images for this machine's GPUs; needs no GPU.")] = False,
) -> None:
    """Build environments ahead of a run."""
    from runner import environments

    chart = arguments.chart(matrix_file, candidate)
    raise typer.Exit(environments.cli_build(chart, releases=tuple(releases or ()), engine=engine, cuda=cuda))


def list_(as_json: Json = False) -> None:
    """Show the environments that are there and whether they are whole."""
    from runner import environments

    raise typer.Exit(environments.cli_list(json=as_json))


def clean() -> None:
    """Remove the environments."""
    from runner import environments

    raise typer.Exit(environments.cli_clean())


def hash_(
    packages: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME==VERSION]...", help="As under packages: in the matrix.")
    ] = None,
    lock: Annotated[
        Path | None,
        typer.Option("--lock", metavar="FILE", help="For its Python; alone, the hashes are written into this file."),
    ] = None,
    matrix_file: MatrixFile = None,
) -> None:
    """Print packages with the hash of their wheel, to be written into the matrix; or write them into a lock."""
    from runner import environments

    chart = None if lock else arguments.chart(matrix_file, None)
    raise typer.Exit(environments.cli_hash(chart, packages=tuple(packages or ()), lock=lock))


Kind = Annotated[str, typer.Argument(metavar="KIND", help="cpu or cuda, as in containers/images.lock.")]


def base(kind: Kind) -> None:
    """Print the base image of a kind of environment, by its digest where images.lock has one."""
    from runner import environments

    raise typer.Exit(environments.cli_base(kind))


def pin(kind: Kind) -> None:
    """Ask the registry for the digest of a base image, and print the lines for containers/images.lock."""
    from runner import environments

    raise typer.Exit(environments.cli_pin(kind))
