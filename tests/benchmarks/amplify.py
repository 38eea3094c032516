"""The bundled sample, amplified: every outage `times` over, under other numbers; same days, same
shape.
"""

import gzip
import re
from pathlib import Path

NUMBER = re.compile(rb'"outageNumber":"')


def amplify(sample: Path, landing: Path, times: int) -> int:
    """Write the amplified landing area and return its number of rows."""
    rows = 0
    for source in sorted((sample / "outage_events").rglob("*.gz")):
        target = landing / source.relative_to(sample)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = gzip.decompress(source.read_bytes())
        rows += times * text.count(b"\n")
        with target.open("wb") as file:  # one gzip member a copy: a valid file of `times` members
            for copy in range(times):
                renamed = text if copy == 0 else NUMBER.sub(b'"outageNumber":"%d-' % copy, text)
                file.write(gzip.compress(renamed, compresslevel=1))
    return rows
