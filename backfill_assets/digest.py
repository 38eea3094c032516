"""The hash that identifies contents."""

import hashlib


def digest(*parts: str, length: int = 32) -> str:
    """A hash of these texts, as so many hexadecimal digits."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:length]
