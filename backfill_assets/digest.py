"""The hash that identifies contents."""

import hashlib


def digest(*parts: str, length: int = 32) -> str:
    """A hash of these texts, with this many hexadecimal digits."""
    return hexdigest("\n".join(parts).encode(), length)


def hexdigest(contents: bytes, length: int = 32) -> str:
    return hashlib.sha256(contents).hexdigest()[:length]
