"""Runs one step of a build with its output in a log, and turns its failure into what to do about it."""

import os
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from runner.environments.progress import Say
from runner.errors import EnvironmentBroken
from runner.messages import clean

HEARTBEAT_S = 15.0
_TAIL = 15

# What a log shows and what to do about it: the first that is found counts, so causes stand before consequences.
_ADVICE = (
    (
        r"No space left on device|Disk quota exceeded",
        "the disk is full: free some space, for example with `runner env clean`",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError",
        "the package index shows a certificate that is not trusted here: give pip the certificates with PIP_CERT=FILE",
    ),
    (
        r"Name or service not known|name resolution|Failed to establish a new connection|Network is unreachable"
        r"|ConnectTimeoutError|ReadTimeoutError|ProxyError|Max retries exceeded|Errno 111|Connection refused",
        "the package index cannot be reached: check the network, the proxy (HTTPS_PROXY), and pip's index settings "
        "(`pip config list`)",
    ),
    (
        r"THESE PACKAGES DO NOT MATCH THE HASHES",
        "the package index gave another file than the one that was locked: do not use it; where you know that the file "
        "is right, `runner env hash` prints its hash, to write into the lock or matrix.yaml",
    ),
    (
        r"Hashes are required in --require-hashes mode",
        "the lock has hashes for some packages and not for all: `runner env hash --lock FILE` writes them into it",
    ),
    (
        r"No matching distribution found for torch==",
        "pip has no CPU build of torch: give it PyTorch's CPU wheel index, for example through PIP_EXTRA_INDEX_URL, "
        "or a folder with the wheel through PIP_FIND_LINKS; in GitHub Actions write the index's address as one line "
        "into .github/pip-index and commit it",
    ),
    (
        r"No matching distribution found for (\S+)",
        r"the package index does not have \1 for this Python and platform: check pip's index settings "
        "(`pip config list`)",
    ),
    (
        r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        r"install the system library \1 (libnuma.so.1 is in the package libnuma1 on Debian and Ubuntu)",
    ),
)


def run(
    command: Sequence[str],
    *,
    log: Path,
    what: str,
    say: Say,
    progress: Callable[[str], str] = lambda _: "",
) -> str:
    """Run a command, append its output to the log and return it; EnvironmentBroken where it fails.

    Says `what` at once, and again from time to time with what `progress` reads from the output so far.
    """
    say(what)
    lines: list[str] = []
    ended = threading.Event()

    def heartbeat() -> None:
        while not ended.wait(HEARTBEAT_S):
            say(f"{what}: {progress(''.join(lines)) or 'still at it'} (log: {log})")

    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        try:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_environ(),
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise broken(what, f"{error}", log) from error
        with process:
            assert process.stdout
            try:
                threading.Thread(target=heartbeat, daemon=True).start()
                for line in process.stdout:
                    lines.append(line)
                    file.write(line)
                    file.flush()
                code = process.wait()
            finally:
                ended.set()
                process.kill()  # where this was interrupted; no more than a formality otherwise
    output = "".join(lines)
    if code:
        raise broken(what, output, log)
    return output


def pip_progress(total: int) -> Callable[[str], str]:
    """Reads `74 of 161 packages found` out of what pip has printed so far."""

    def progress(output: str) -> str:
        if "Installing collected packages" in output:
            return f"unpacking {total} packages"
        return f"{output.count('Collecting ')} of {total} packages found"

    return progress


def _environ() -> dict[str, str]:
    """The caller's variables without those that would change what is built or how vLLM is imported."""
    unwanted = ("PYTHON", "VLLM_", "ATTNMATRIX_", "PIP_USER", "PIP_TARGET", "PIP_PREFIX")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    return {**kept, "PYTHONUTF8": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def broken(what: str, output: str, log: Path) -> EnvironmentBroken:
    """The error for a step that failed: the end of its output, what to do, and where the rest is."""
    tail = "\n".join(f"  {line}" for line in clean(output[-6000:]).strip().splitlines()[-_TAIL:])
    advice = advise(output)
    to_do = f"\nWhat to do: {advice}." if advice else ""
    return EnvironmentBroken(f"{what}: failed\n{tail}{to_do}\nThe whole log: {log}")


def advise(output: str) -> str:
    """What to do about a failure; empty where its output shows nothing known."""
    for pattern, advice in _ADVICE:
        if found := re.search(pattern, output):
            return clean(found.expand(advice), 400)
    return ""
