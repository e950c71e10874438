"""Signatures over `statement.json`: DSSE envelopes with ed25519, through securesystemslib.

For: `--sign-key` and `verify --key`. A signature shows who signed these bytes; it does not show that the run happened. Not for: making
keys (`openssl genpkey -algorithm ed25519 -out key.pem`; `openssl pkey -in key.pem -pubout -out key.pub`).
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey  # type: ignore[attr-defined]  # exported, but not by name

from reports.errors import SigningError

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MAKE_ONE = "openssl genpkey -algorithm ed25519 -out key.pem"


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """The key in a PEM file without a passphrase.

    Raises:
        SigningError: it cannot be read, or is another kind of key.
    """
    data = _read(path)
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SigningError(
            f"{path}: no private key in PEM form without a passphrase ({_one_line(error)}). Make one: {_MAKE_ONE}"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningError(f"{path}: this key is not ed25519. Make one: {_MAKE_ONE}")
    return key


def load_public_key(path: Path) -> Ed25519PublicKey:
    """The key in a PEM file.

    Raises:
        SigningError: it cannot be read, or is another kind of key.
    """
    data = _read(path)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SigningError(f"{path}: no public key in PEM form ({_one_line(error)})") from error
    if not isinstance(key, Ed25519PublicKey):
        raise SigningError(f"{path}: this key is not ed25519")
    return key


def key_id(key: Ed25519PublicKey) -> str:
    """The id by which envelopes name a key: a digest of it."""
    found: str = SSlibKey.from_crypto(key).keyid
    return found


def sign(statement: bytes, key: Ed25519PrivateKey) -> bytes:
    """The envelope around a statement; the same statement and key give the same bytes."""
    envelope = Envelope(statement, PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(key, SSlibKey.from_crypto(key.public_key())))
    return (json.dumps(envelope.to_dict(), indent=1, sort_keys=True) + "\n").encode()


def signed_statement(envelope: dict[str, object], key: Ed25519PublicKey) -> bytes:
    """The statement inside an envelope that this key signed.

    Raises:
        SigningError: this is no envelope, or the key did not sign what is in it.
    """
    try:
        read: Envelope = Envelope.from_dict(copy.deepcopy(envelope))  # the library empties what it is given
    except Exception as error:  # the library's exceptions for bad input have no common base
        raise SigningError(f"this is no signature envelope ({type(error).__name__}: {_one_line(error)})") from error
    if read.payload_type != PAYLOAD_TYPE:
        raise SigningError(f"the signature is over {read.payload_type!r}, not over {PAYLOAD_TYPE!r}")
    try:
        read.verify([SSlibKey.from_crypto(key)], threshold=1)
    except (VerificationError, UnverifiedSignatureError) as error:
        raise SigningError(f"the signature is not by this key ({key_id(key)[:16]}…), or not over this statement") from error
    payload: bytes = read.payload
    return payload


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SigningError(f"{path}: {error.strerror}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
