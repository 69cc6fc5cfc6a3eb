"""A Sigstore of one's own: a certificate authority, its log of certificates and a log of signatures, all with new keys.

What a signer of it makes has the form of what GitHub's `actions/attest` writes: https://github.com/sigstore/protobuf-specs.
"""

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

IN_TOTO = "application/vnd.in-toto+json"
_BEGAN = datetime(2026, 12, 1, 12, tzinfo=UTC)
_ORIGIN = "log.example - 1"


def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem(signer: ec.EllipticCurvePrivateKey) -> bytes:
    return signer.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def sign(signer: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    return signer.sign(data, ec.ECDSA(hashes.SHA256()))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def envelope(signer: ec.EllipticCurvePrivateKey, payload: bytes, kind: str = IN_TOTO) -> dict[str, Any]:
    """DSSE, https://github.com/secure-systems-lab/dsse/blob/master/protocol.md"""
    pae = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
    return {"payload": b64(payload), "payloadType": kind, "signatures": [{"sig": b64(sign(signer, pae))}]}


def _der(signer: ec.EllipticCurvePrivateKey) -> bytes:
    return signer.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True, slots=True)
class Sigstore:
    """Keys that exist for one test."""

    authority: ec.EllipticCurvePrivateKey = field(default_factory=key)
    certificates: ec.EllipticCurvePrivateKey = field(default_factory=key)
    signatures: ec.EllipticCurvePrivateKey = field(default_factory=key)

    def _root(self) -> x509.Certificate:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        return (
            x509.CertificateBuilder(_name("root"), _name("root"), self.authority.public_key(), 1)
            .not_valid_before(_BEGAN - timedelta(days=1))
            .not_valid_after(_BEGAN + timedelta(days=9))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key()), critical=False)
            .sign(self.authority, hashes.SHA256())
        )

    def trusted_root(self) -> dict[str, Any]:
        """https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_trustroot.proto"""

        def log(one: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            public = {"rawBytes": b64(_der(one)), "keyDetails": "PKIX_ECDSA_P256_SHA_256"}
            valid = {"validFor": {"start": (_BEGAN - timedelta(days=1)).isoformat().replace("+00:00", "Z")}}
            id_ = {"keyId": b64(hashlib.sha256(_der(one)).digest())}
            return {
                "baseUrl": "https://log.example", "hashAlgorithm": "SHA2_256", "publicKey": public | valid, "logId": id_
            }  # fmt: skip

        chain = {"certificates": [{"rawBytes": b64(self._root().public_bytes(Encoding.DER))}]}
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.signatures)],
            "ctlogs": [log(self.certificates)],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "x", "commonName": "root"},
                    "uri": "https://ca.example",
                    "certChain": chain,
                    "validFor": {"start": (_BEGAN - timedelta(days=1)).isoformat().replace("+00:00", "Z")},
                }
            ],
        }

    def _leaf(self, signer: ec.EllipticCurvePrivateKey, identity: str, issuer: str) -> x509.Certificate:
        """As Fulcio makes one, with a timestamp of the log of certificates in it (RFC 6962)."""
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        builder = (
            x509.CertificateBuilder(_name("root"), x509.Name([]), signer.public_key(), 7)
            .not_valid_before(_BEGAN)
            .not_valid_after(_BEGAN + timedelta(minutes=10))
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()), False)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True)
            .add_extension(
                x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.57264.1.1"), issuer.encode()), critical=False
            )
        )
        unlogged = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        when = int(_BEGAN.timestamp() * 1000)
        entry = hashlib.sha256(_der(self.authority)).digest() + struct.pack("!I", len(unlogged))[1:] + unlogged
        signature = sign(self.certificates, struct.pack("!BBQH", 0, 0, when, 1) + entry + struct.pack("!H", 0))
        stamp = struct.pack("!B32sQH", 0, hashlib.sha256(_der(self.certificates)).digest(), when, 0)
        stamp += struct.pack("!BBH", 4, 3, len(signature)) + signature
        stamps = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
        octets = b"\x04" + (bytes([len(stamps)]) if len(stamps) < 128 else bytes([0x81, len(stamps)])) + stamps
        listed = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2"), octets)
        return builder.add_extension(listed, critical=False).sign(self.authority, hashes.SHA256())

    def attest(self, payload: bytes, identity: str, issuer: str) -> dict[str, Any]:
        """A bundle with the signature of this identity, and the entry of it in a log of one entry."""
        signer = key()
        leaf = self._leaf(signer, identity, issuer)
        signed = envelope(signer, payload)
        verifier = b64(leaf.public_bytes(Encoding.PEM))
        body = rfc8785.dumps({
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(b"unknown").hexdigest()},
                "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
                "signatures": [{"signature": signed["signatures"][0]["sig"], "verifier": verifier}],
            },
        })  # fmt: skip
        log, time = hashlib.sha256(_der(self.signatures)).digest(), int(_BEGAN.timestamp()) + 60
        root = hashlib.sha256(b"\0" + body).digest()
        note = f"{_ORIGIN}\n1\n{b64(root)}\n"
        checkpoint = f"{note}\n\u2014 log.example {b64(log[:4] + sign(self.signatures, note.encode()))}\n"
        promise = {"body": b64(body), "integratedTime": time, "logID": log.hex(), "logIndex": 0}
        entry = {
            "logIndex": "0",
            "logId": {"keyId": b64(log)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(time),
            "inclusionPromise": {"signedEntryTimestamp": b64(sign(self.signatures, rfc8785.dumps(promise)))},
            "inclusionProof": {
                "logIndex": "0", "rootHash": b64(root), "treeSize": "1", "hashes": [],
                "checkpoint": {"envelope": checkpoint},
            },
            "canonicalizedBody": b64(body),
        }  # fmt: skip
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": b64(leaf.public_bytes(Encoding.DER))}, "tlogEntries": [entry]
            },
            "dsseEnvelope": signed,
        }  # fmt: skip


def statement(**digests: str) -> bytes:
    """An in-toto Statement over files with these digests."""
    subject = [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()]
    made = {"_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": "x", "predicate": {}}
    return json.dumps(made).encode()
