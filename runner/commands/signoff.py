"""`runner signoff` and `runner verify`: from results to a decision that can be defended, and checked by others."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from runner import output
from runner.commands.arguments import Json
from runner.errors import UsageError

Time = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="As of then, such as 2026-11-30T12:00:00Z; by default, now.")
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(signoff)
    app.command()(verify)


def signoff(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories of one release or candidate.")],
    policy: Annotated[
        str,
        typer.Option("--policy", metavar="NAME|FILE", help="What must have been shown: release, metadata, or a file."),
    ],
    vllm: Annotated[
        str | None, typer.Option("--vllm", metavar="RELEASE", help="What is signed off, where the runs are of several.")
    ] = None,
    waivers: Annotated[
        Path | None, typer.Option("--waivers", metavar="FILE", help="Waivers, beside those of the policy.")
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option("--since", metavar="RUN", help="Say what changed since this run, of the last release."),
    ] = None,
    matrix_file: Annotated[
        Path | None,
        typer.Option("--matrix", metavar="FILE", help="By default, that of the last RUN."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The bundle; by default under signoff/ in the first RUN."),
    ] = None,
    at: Time = None,
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="Where the runs can be seen, such as a CI job.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Decide GO, GO WITH WAIVERS or NO-GO by a policy, and write a bundle that proves it.

    Exit code 0 for GO and GO WITH WAIVERS, 1 for NO-GO.
    """
    from runner.signoff import bundle, terminal

    asked = bundle.Asked(
        runs=runs, policy=policy, vllm=vllm, matrix=matrix_file, waivers=waivers, since=since, at=_time(at), url=url
    )
    where, made, digest = bundle.create(asked, out)
    if as_json:
        output.emit(made.files["signoff.json"].decode().rstrip())
    else:
        terminal.show(made, where, digest)
    raise typer.Exit(terminal.exit_code(made.judgement.decision))


def verify(
    folder: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The directory that `runner signoff` wrote.")],
    digest: Annotated[
        str, typer.Option("--digest", metavar="sha256:HEX", help="Of the bundle, from where you trust it.")
    ] = "",
    vllm: Annotated[str, typer.Option("--vllm", metavar="RELEASE", help="What it must be about.")] = "",
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME|FILE", help="What it must have been decided by, byte for byte.")
    ] = "",
    max_age: Annotated[
        int | None, typer.Option("--max-age", metavar="DAYS", min=1, max=3650, help="Older is stale.")
    ] = None,
    at: Time = None,
    as_json: Json = False,
) -> None:
    """Check a bundle offline: that it is whole, that its decision follows from its inputs, that it still holds.

    Exit code 0 where it holds and says GO or GO WITH WAIVERS, else 1.
    """
    from runner.signoff import policy as policies
    from runner.signoff import terminal
    from runner.signoff import verify as checks

    rules = policies.find(policy) if policy else None
    if rules and not rules.is_file():
        raise UsageError(f"{rules}: no such file: give --policy NAME, or a file")
    expected = checks.Expected(digest=_digest(digest), vllm=vllm, policy=rules, max_age_days=max_age)
    found = checks.verify(folder, now=_time(at), expected=expected)
    if as_json:
        output.emit(
            json.dumps(
                {
                    "holds": not found.findings,
                    "decision": found.decision,
                    "about": found.about,
                    "digest": found.digest,
                    "findings": found.findings,
                }
            )
        )
    else:
        terminal.show_verified(found, folder)
    raise typer.Exit(0 if not found.findings and found.decision in {"GO", "GO WITH WAIVERS"} else 1)


def _time(text: str | None) -> datetime:
    """A time to the second, in UTC."""
    if text is None:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        found = datetime.fromisoformat(text)
        found = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC).replace(microsecond=0)
        if 2000 <= found.year < 3000:
            return found
        raise ValueError(text)
    except (ValueError, OverflowError):
        raise UsageError(f"--at {text!r}: write a time such as 2026-11-30T12:00:00Z, or a day") from None


def _digest(text: str) -> str:
    digits = text.removeprefix("sha256:").lower()
    if text and (len(digits) != 64 or set(digits) - set("0123456789abcdef")):
        raise UsageError(f"--digest {text!r}: write sha256: and 64 hex digits, as `runner signoff` prints them")
    return f"sha256:{digits}" if text else ""
