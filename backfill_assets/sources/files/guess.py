"""What a file looks like, for messages only: no file is read by a guess."""

_ENCODINGS = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "shift_jis", "gb18030", "euc_kr")
_SHOWN = 3


def likely_encodings(sample: bytes) -> list[str]:
    """Return the encodings that a sample of text may have, the likeliest first."""
    from charset_normalizer import from_bytes

    found = [match.encoding for match in from_bytes(sample, cp_isolation=[*_ENCODINGS])]
    return found[:_SHOWN]
