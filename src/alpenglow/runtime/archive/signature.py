"""Signatures: that an archive is what the owner of a key has signed, to the last byte that matters.

A signature is Ed25519 (RFC 8032), by the package `cryptography`, over the first 64 bytes of the
file.  These hold the digest of the header, and that the digests of everything else.  It follows the
archive as a trailer of 72 bytes, which is no part of what is signed:

    magic (8 bytes), signature (64 bytes)

Keys are PEM files, as OpenSSL writes them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from alpenglow.base.errors import OptionError, SignatureError, UnsupportedError

MAGIC = b"ALPSIGN\n"
NBYTES = len(MAGIC) + 64
CONTEXT = b"alpenglow archive\n"
"""What is signed begins so: what the key signs elsewhere is no signature of an archive."""

Key = str | Path | bytes
"""A PEM file, or what is in one."""


def parted(view: memoryview) -> tuple[memoryview, bytes | None]:
    """Return an archive without its signature, and that; None where there is none."""
    if len(view) < NBYTES or bytes(view[-NBYTES : -NBYTES + len(MAGIC)]) != MAGIC:
        return view, None
    return view[:-NBYTES], bytes(view[-NBYTES + len(MAGIC) :])


def sign(prefix: bytes, key: Key) -> bytes:
    """Return the trailer for an archive that begins with `prefix`, by a private key."""
    private = _loaded("load_pem_private_key", key, "Ed25519PrivateKey", None)
    return MAGIC + bytes(private.sign(CONTEXT + prefix))


def check(prefix: bytes, signature: bytes | None, key: Key) -> None:
    """Raise SignatureError unless the owner of a public key has signed what begins so."""
    public = _loaded("load_pem_public_key", key, "Ed25519PublicKey")
    if signature is None:
        raise SignatureError(
            "the archive is not signed, and a key is demanded",
            hint="alpenglow sign FILE --key PRIVATE, with the key that belongs to yours",
        )
    try:
        public.verify(signature, CONTEXT + prefix)
    except _library("cryptography.exceptions").InvalidSignature:
        raise SignatureError(
            "the archive is signed by another key or was changed, expected a signature of this key"
        ) from None


def _loaded(function: str, key: Key, kind: str, *more: object) -> Any:
    """Return the key in a PEM file; raise OptionError if there is none of this kind."""
    load = getattr(_library("cryptography.hazmat.primitives.serialization"), function)
    what, file = ("the key", "") if isinstance(key, bytes) else ("the key", str(key))
    try:
        loaded = load(key if isinstance(key, bytes) else Path(key).read_bytes(), *more)
    except OSError as error:
        raise OptionError(f"{what} cannot be read: {error.strerror}", file=file) from None
    except TypeError:
        raise OptionError(
            f"{what} is encrypted", file=file, hint="openssl pkey -in KEY -out DECRYPTED"
        ) from None
    except (ValueError, _library("cryptography.exceptions").UnsupportedAlgorithm):
        loaded = None
    wanted = getattr(_library("cryptography.hazmat.primitives.asymmetric.ed25519"), kind)
    if not isinstance(loaded, wanted):
        secrecy = "private" if "Private" in kind else "public"
        raise OptionError(
            f"{what} is no {secrecy} Ed25519 key in PEM", file=file,
            hint="openssl genpkey -algorithm ed25519 -out private.pem; "
            "openssl pkey -in private.pem -pubout -out public.pem",
        )  # fmt: skip
    return loaded


def _library(name: str) -> Any:
    """Return a module of `cryptography`, which only those who sign or check need."""
    if find_spec("cryptography") is None:
        raise UnsupportedError(
            "signatures need the package cryptography", hint="pip install 'alpenglow[sign]'"
        )
    return import_module(name)
