"""Files as they are delivered."""

import gzip
from pathlib import Path

LINE = '{"outageNumber": "1"}\n'


def put(root: Path, name: str, text: str | bytes = LINE) -> Path:
    """A file of this text; packed, if its name says so and the text is not bytes."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(text, str):
        text = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    path.write_bytes(text)
    return path
