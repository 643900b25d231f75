"""Ed25519 keys: who signs heads, and whether a signature is good. Where a seed is kept is not known here."""

import secrets
from typing import TYPE_CHECKING, Any, Final

from proctor.errors import MissingExtraError, ValidationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED_BYTES: Final = 32


class Signer:
    """Signs with one private key, which no repr and no pickle shows."""

    __slots__ = ("_key", "public")

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key
        self.public: Final = key.public_key().public_bytes_raw()

    @classmethod
    def of(cls, seed: bytes) -> "Signer":
        """Return the signer with this seed of 32 bytes; anything else is a ValidationError."""
        if len(seed) != SEED_BYTES:
            raise ValidationError("not the seed of a key", expected=f"{SEED_BYTES} bytes")
        return cls(_import_ed25519().Ed25519PrivateKey.from_private_bytes(seed))

    def sign(self, message: bytes) -> bytes:
        """Return the signature of the message, 64 bytes."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"Signer(public={self.public.hex()})"

    def __reduce__(self) -> str:
        raise TypeError("a signer stays where it was made")


def new_seed() -> bytes:
    """Return the seed of a new key."""
    return secrets.token_bytes(SEED_BYTES)


def verify_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether the owner of the public key signed the message; False for what is no key or no signature."""
    keys = _import_ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        keys.Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _import_ed25519() -> Any:
    """Return the module of the keys, or raise a MissingExtraError: a client that verifies nothing needs no cryptography."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtraError("to sign or to check a signature", package="cryptography", extra="serve") from None
    return ed25519
