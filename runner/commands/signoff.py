"""`runner signoff` and `runner verify`: from results to a decision that can be defended, and checked by others."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner import output
from runner.commands.arguments import Json
from runner.errors import UsageError

if TYPE_CHECKING:  # they are slow to import
    from runner.signoff.attestation import Attestation
    from runner.signoff.verify import Given

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
        output.emit_json(made.files["signoff.json"].decode().rstrip())
    else:
        terminal.show(made, where, digest)
    raise typer.Exit(terminal.exit_code(made.judgement.decision))


def verify(
    folder: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The directory that `runner signoff` wrote.")],
    digest: Annotated[
        str, typer.Option("--digest", metavar="sha256:HEX", help="Of the bundle, from where you trust it.")
    ] = "",
    vllm: Annotated[str, typer.Option("--vllm", metavar="RELEASE", help="What it must be about.")] = "",
    matrix_file: Annotated[
        str, typer.Option("--matrix", metavar="FILE|sha256:HEX", help="The matrix that it must rest on.")
    ] = "",
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME|FILE|sha256:HEX", help="What it must have been decided by.")
    ] = "",
    waivers: Annotated[
        str, typer.Option("--waivers", metavar="FILE|sha256:HEX", help="The waivers that it must have been given.")
    ] = "",
    no_waivers: Annotated[bool, typer.Option("--no-waivers", help="It must have been given no file of them.")] = False,
    since: Annotated[
        str,
        typer.Option("--since", metavar="RUN|FILE|sha256:HEX", help="What it must have been compared with."),
    ] = "",
    attestation: Annotated[
        Path | None, typer.Option("--attestation", metavar="FILE", help="A DSSE envelope, or a Sigstore bundle.")
    ] = None,
    signer: Annotated[
        str, typer.Option("--signer", metavar="KEY|IDENTITY", help="Who must have signed it: a public key, or a name.")
    ] = "",
    issuer: Annotated[
        str, typer.Option("--issuer", metavar="URL", help="Who vouches for the identity; by default, GitHub Actions.")
    ] = "",
    trusted_root: Annotated[
        Path | None, typer.Option("--trusted-root", metavar="FILE", help="Of Sigstore; by default the one it has kept.")
    ] = None,
    max_age: Annotated[
        int | None, typer.Option("--max-age", metavar="DAYS", min=1, max=3650, help="Older is stale.")
    ] = None,
    at: Time = None,
    as_json: Json = False,
) -> None:
    """Check a bundle offline: that it is whole, that its decision follows from its inputs, that it still holds.

    Each option holds it against what you know from elsewhere. What none is given for is said.

    Exit code 0 where it holds and says GO or GO WITH WAIVERS, else 1.
    """
    from runner.signoff import policy as policies
    from runner.signoff import terminal
    from runner.signoff import verify as checks

    if waivers and no_waivers:
        raise UsageError("--waivers and --no-waivers: it was given waivers, or it was not; leave one of them out")
    expected = checks.Expected(
        digest=_digest("--digest", digest),
        vllm=vllm,
        matrix=_given("--matrix", matrix_file),
        policy=_given("--policy", policy, policies.find),
        waivers=_given("--waivers", waivers),
        no_waivers=no_waivers,
        since=_given("--since", since, _results),
        max_age_days=max_age,
        attestation=_attestation(attestation, signer, issuer, trusted_root),
    )
    found = checks.verify(folder, now=_time(at), expected=expected)
    if as_json:
        output.emit_json(
            json.dumps(
                {
                    "holds": not found.findings,
                    "decision": found.decision,
                    "about": found.about,
                    "digest": found.digest,
                    "findings": found.findings,
                    "unchecked": found.unchecked,
                }
            )
        )
    else:
        terminal.show_verified(found, folder)
    raise typer.Exit(0 if not found.findings and found.decision in {"GO", "GO WITH WAIVERS"} else 1)


def _given(option: str, text: str, find: Callable[[str], Path] = Path) -> "Given | None":
    """What a person names: a file, or the digest of one."""
    from runner.signoff.verify import Given

    if not text:
        return None
    if text.startswith("sha256:"):
        return Given(title=text, sha256=_digest(option, text).removeprefix("sha256:"))
    path = find(text)
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}): give {option} FILE, or sha256:HEX") from None
    return Given(title=str(path), sha256=found, name=path.stem)


def _results(text: str) -> Path:
    """results.json of a run directory, or the file itself."""
    return path / "results.json" if (path := Path(text)).is_dir() else path


def _attestation(file: Path | None, signer: str, issuer: str, trusted_root: Path | None) -> "Attestation | None":
    from runner.signoff.attestation import GITHUB, Attestation

    if bool(file) is not bool(signer):
        raise UsageError("--attestation and --signer belong together: what was signed, and who must have signed it")
    if file is None:
        return None
    return Attestation(file=file, signer=signer, issuer=issuer or GITHUB, trusted_root=trusted_root)


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


def _digest(option: str, text: str) -> str:
    digits = text.removeprefix("sha256:").lower()
    if text and (len(digits) != 64 or set(digits) - set("0123456789abcdef")):
        raise UsageError(f"{option} {text!r}: write sha256: and 64 hex digits, as `runner signoff` prints them")
    return f"sha256:{digits}" if text else ""
