"""Small files that are written whole or not at all, below a folder of the lake."""

import os
import secrets
from pathlib import Path

from pyarrow import fs

from backfill_assets.lake.paths import files_in


def write_whole(folder: str, name: str, contents: str) -> None:
    """Write `<folder>/<name>`, in place of what is there. `name` may itself name folders; all are made.

    Until the file has its name, it begins with an underscore.
    """
    if "://" in folder:  # an object appears when it is complete
        # Unbuffered, the handler is given an Arrow buffer, which it does not take (deltalake 1.6).
        with files_in(folder).open_output_stream(name, buffer_size=2**16) as out:
            out.write(contents.encode())
        return
    target = Path(folder, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"_{target.stem}.{secrets.token_hex(4)}{target.suffix}")
    with unfinished.open("w") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())  # after a power cut, a file that has its name has its contents
    unfinished.replace(target)


def read_file(folder: str, name: str) -> bytes | None:
    """The contents of `<folder>/<name>`; None if there is no such file."""
    files = files_in(folder)
    if files.get_file_info(name).type == fs.FileType.NotFound:
        return None
    with files.open_input_stream(name) as stream:
        return bytes(stream.read())
