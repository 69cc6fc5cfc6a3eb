"""Whether somebody who is trusted has signed a bundle: the signature is checked by securesystemslib, or by Sigstore.

Both are of the extra `verify`. An attestation is a DSSE envelope around an in-toto Statement, in a file of its own or
in a Sigstore bundle, such as GitHub's `actions/attest` writes.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.reports.text import one_line

GITHUB = "https://token.actions.githubusercontent.com"
"""The issuer of the identities of GitHub's workflows."""
MAX_BYTES = 16 << 20
_IN_TOTO = "application/vnd.in-toto+json"


class NotAttestedError(Exception):
    """The attestation is not by that signer, or is about something else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attestation:
    """A file, and who must have signed it."""

    file: Path
    signer: str
    """The file of a public key in PEM, or an identity: of a workflow, its address with the branch; of a person, a mail
    address."""
    issuer: str = GITHUB
    """Who vouches for an identity."""
    trusted_root: Path | None = None
    """Of Sigstore, as JSON; by default the one that its library has kept."""

    def check(self, sums: bytes, statement: bytes) -> None:
        """NotAttestedError unless it is by the signer, and about the bundle with these sums and this statement."""
        kind, payload = self._payload()
        if kind != _IN_TOTO:
            raise NotAttestedError(f"holds {one_line(kind)}, and not an in-toto Statement")
        said = _loaded(payload)
        try:
            digests = {subject["digest"].get("sha256", "") for subject in said["subject"]}
        except (KeyError, TypeError, AttributeError):
            raise NotAttestedError("holds no in-toto Statement that can be read") from None
        files = {line.split("  ", 1)[0] for line in sums.decode("utf-8", "replace").splitlines()}
        if said == _loaded(statement) or hashlib.sha256(sums).hexdigest() in digests or files <= digests:
            return
        raise NotAttestedError("is about something else: it names neither SHA256SUMS nor statement.json of this bundle")

    def _payload(self) -> tuple[str, bytes]:
        """What was signed, with its type, after the signature was checked."""
        try:
            text = _read(self.file)
            data = _loaded(text)
            key = Path(self.signer)
            return self._by_key(data, _read(key)) if key.is_file() else self._by_identity(text)
        except ImportError:
            raise UsageError("--signer: signatures are checked by an extra: pip install 'attnmatrix[verify]'") from None

    def _by_key(self, data: Any, pem: bytes) -> tuple[str, bytes]:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
        from securesystemslib.dsse import Envelope
        from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
        from securesystemslib.signer import SSlibKey

        try:
            public = load_pem_public_key(pem)
            SSlibKey.from_crypto(public)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise UsageError(f"--signer {self.signer}: is no public key in PEM ({error})") from None
        try:
            found = data.get("dsseEnvelope", data)
            # what an envelope calls its keys is a hint, and may be left out
            signatures = [{**one, "keyid": str(number)} for number, one in enumerate(found["signatures"], 1)]
            envelope = Envelope.from_dict({**found, "signatures": signatures})
        except (KeyError, TypeError, ValueError, AttributeError):
            raise NotAttestedError("holds no DSSE envelope") from None
        keys = [SSlibKey.from_crypto(public, keyid=keyid) for keyid in envelope.signatures]
        try:
            envelope.verify(keys, 1)
        except (ValueError, VerificationError, UnverifiedSignatureError):
            raise NotAttestedError(f"is not signed by {self.signer}") from None
        return envelope.payload_type, envelope.payload

    def _by_identity(self, text: bytes) -> tuple[str, bytes]:
        from sigstore.errors import Error
        from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot
        from sigstore.verify import Verifier
        from sigstore.verify.policy import Identity

        try:
            kept = None if self.trusted_root else ClientTrustConfig.production(offline=True).trusted_root
            verifier = Verifier(trusted_root=kept or TrustedRoot.from_file(str(self.trusted_root)))
        except (Error, ValueError, OSError) as error:
            what = f"--trusted-root {self.trusted_root}" if self.trusted_root else "Sigstore's trusted root"
            raise UsageError(f"{what}: cannot be used ({one_line(str(error))}): give --trusted-root FILE") from None
        try:
            identity = Identity(identity=self.signer, issuer=self.issuer)
            kind, payload = verifier.verify_dsse(Bundle.from_json(text), identity)
        except (Error, ValueError) as error:
            raise NotAttestedError(f"is not signed by {self.signer}: {one_line(str(error))}") from None
        return kind, payload


def _loaded(text: bytes) -> Any:
    """Plain data; None where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(path: Path) -> bytes:
    """No more of a file than an attestation or a key can be."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: is larger than {MAX_BYTES >> 20} MiB: hardly an attestation or a key")
    return data
