"""Who signed a bundle: by keys and by identities that are made here, and without a network."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from runner import cli
from runner.errors import UsageError
from runner.signoff.attestation import GITHUB, Attestation
from runner.signoff.verify import Expected, verify
from tests.unit.signoffs import AT, WAIVERS, run, sign
from tests.unit.sigstores import Sigstore, envelope, key, pem, statement

WORKFLOW = "https://github.com/x/y/.github/workflows/release-signoff.yml@refs/heads/main"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return sign(tmp_path, run(tmp_path, "a", devices=["sm100"]), waivers=WAIVERS)[0]


def written(path: Path, data: Any) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def findings(whole: Path, attestation: Attestation) -> str:
    return "\n".join(verify(whole, now=AT, expected=Expected(attestation=attestation)).findings)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def listed(whole: Path) -> dict[str, str]:
    lines = (line.split("  ") for line in (whole / "SHA256SUMS").read_text().splitlines())
    return {name: digest for digest, name in lines}


def test_a_key_signs_the_statement_or_the_sums_and_nothing_else_will_do(whole: Path, tmp_path: Path) -> None:
    ours, theirs = key(), key()
    signer = str(written(tmp_path / "key.pem", pem(ours)))
    about_it = (
        (whole / "statement.json").read_bytes(),
        statement(SHA256SUMS=sha256(whole / "SHA256SUMS")),
        statement(**listed(whole), more="0" * 64),  # as GitHub's action attests what SHA256SUMS lists
    )
    for payload in about_it:
        attestation = Attestation(file=written(tmp_path / "a.json", envelope(ours, payload)), signer=signer)
        assert findings(whole, attestation) == ""
    file = tmp_path / "a.json"
    incomplete = dict(list(listed(whole).items())[1:])
    for data, words in (
        (envelope(theirs, about_it[0]), "is not signed by"),
        (envelope(ours, about_it[0]) | {"payload": envelope(ours, about_it[1])["payload"]}, "is not signed by"),
        (envelope(ours, statement(SHA256SUMS="0" * 64)), "is about something else"),
        (envelope(ours, statement(**incomplete)), "is about something else"),
        (envelope(ours, statement()), "is about something else"),
        (envelope(ours, about_it[0], "text/plain"), "holds text/plain, and not an in-toto Statement"),
        (envelope(ours, b"x"), "holds no in-toto Statement that can be read"),
        (envelope(ours, b"[]"), "holds no in-toto Statement that can be read"),
        (envelope(ours, about_it[0]) | {"signatures": []}, "is not signed by"),
        ({"x": 1}, "holds no DSSE envelope"),
        ([], "holds no DSSE envelope"),
        (b"[" * 100_000, "holds no DSSE envelope"),
    ):
        found = findings(whole, Attestation(file=written(file, data), signer=signer))
        assert words in found, found


def test_an_identity_signs_by_sigstore(whole: Path, tmp_path: Path) -> None:
    sigstore = Sigstore()
    root = written(tmp_path / "root.json", sigstore.trusted_root())
    payload = statement(SHA256SUMS=sha256(whole / "SHA256SUMS"))
    file = written(tmp_path / "a.json", sigstore.attest(payload, WORKFLOW, GITHUB))
    assert findings(whole, Attestation(file=file, signer=WORKFLOW, trusted_root=root)) == ""
    for attestation, words in (
        (Attestation(file=file, signer=WORKFLOW.replace("main", "mine"), trusted_root=root), "is not signed by"),
        (Attestation(file=file, signer=WORKFLOW, issuer="https://x.example", trusted_root=root), "is not signed by"),
    ):
        assert words in findings(whole, attestation)
    forged = written(tmp_path / "b.json", Sigstore().attest(payload, WORKFLOW, GITHUB))
    assert "is not signed by" in findings(whole, Attestation(file=forged, signer=WORKFLOW, trusted_root=root))
    elsewhere = written(tmp_path / "c.json", sigstore.attest(statement(SHA256SUMS="0" * 64), WORKFLOW, GITHUB))
    about = findings(whole, Attestation(file=elsewhere, signer=WORKFLOW, trusted_root=root))
    assert "is about something else" in about
    other = json.loads(file.read_text())
    other["dsseEnvelope"]["payload"] = json.loads(elsewhere.read_text())["dsseEnvelope"]["payload"]
    moved = written(tmp_path / "d.json", other)
    assert "is not signed by" in findings(whole, Attestation(file=moved, signer=WORKFLOW, trusted_root=root))


def test_a_bundle_made_anew_is_found_by_its_attestation(whole: Path, tmp_path: Path) -> None:
    """What nothing else shows: other results, under the same matrix and policy, by the same command."""
    ours = key()
    signer = str(written(tmp_path / "key.pem", pem(ours)))
    file = written(tmp_path / "a.json", envelope(ours, (whole / "statement.json").read_bytes()))
    again, _, _ = sign(tmp_path, run(tmp_path, "b", devices=["sm100"]), waivers=WAIVERS, out="again")
    assert verify(again, now=AT).findings == ()
    assert "is about something else" in findings(again, Attestation(file=file, signer=signer))


def test_the_command_takes_an_attestation_and_says_no_more_that_nobody_signed(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = key()
    signer = written(tmp_path / "key.pem", pem(ours))
    file = written(tmp_path / "a.json", envelope(ours, (whole / "statement.json").read_bytes()))
    words = ["verify", str(whole), "--at", AT.isoformat()]
    assert cli.main(words) == 0
    assert "who made it, and the results themselves" in capsys.readouterr().out
    assert cli.main([*words, "--attestation", str(file), "--signer", str(signer)]) == 0
    assert "who made it" not in capsys.readouterr().out
    written(signer, pem(key()))
    assert cli.main([*words, "--attestation", str(file), "--signer", str(signer)]) == 1
    assert "is not signed by" in capsys.readouterr().out


def test_what_cannot_be_used_is_a_usage_error(whole: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "a.json", envelope(key(), b"x"))
    no_key = written(tmp_path / "no.pem", b"x")
    for attestation, words in (
        (Attestation(file=tmp_path / "none.json", signer=WORKFLOW), "none.json: cannot be read"),
        (Attestation(file=file, signer=str(no_key)), "is no public key in PEM"),
        (Attestation(file=file, signer=WORKFLOW, trusted_root=no_key), "cannot be used"),
        (Attestation(file=file, signer=WORKFLOW, trusted_root=tmp_path / "none.json"), "give --trusted-root FILE"),
    ):
        with pytest.raises(UsageError, match=words):
            findings(whole, attestation)
