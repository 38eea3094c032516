"""Files of a lake on a local disk that are empty, cut off or missing.

A power cut may leave such a file where it was written and not yet put on the disk (`durable.py`):
the newest commit or the checkpoint of a table, a file of the ledger. A disk that loses what it
acknowledged may leave any. Nothing is written on top of such a file. `reconcile --repair` moves it
to `_damaged` in the lake.
"""

import json
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.errors import BrokenFile
from backfill_assets.lake.durable import put_on_disk

# The folder for files that were moved aside, with their paths in the lake.
DAMAGED = "_damaged"
# The last line of each of our commits of rows is the transaction of this name. A commit that is cut
# off at the end of a line lacks it.
ENDS = "backfill_assets.ends"
# The numbers of added and of removed files in other commits of `deltalake`: of a write, of a
# compaction.
_COUNTS = ("num_added_files", "numFilesAdded", "num_removed_files", "numFilesRemoved")
_LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")


def why_broken(file: Path, *, is_newest: bool = True) -> str:
    """Why a JSON or Parquet file cannot be used: it is missing, empty or cut off. Else ""."""
    try:
        if not file.stat().st_size:
            return "is empty"
        if file.suffix == ".parquet":
            pq.read_metadata(file)
        elif file.parent.name == _LOG:
            return _why_broken_commit(
                file.parents[1], file.read_bytes().splitlines(), is_newest=is_newest
            )
        else:
            json.loads(file.read_bytes())
    except FileNotFoundError:
        return "is missing"
    except (ValueError, AttributeError, pa.ArrowException):
        return "is cut off"
    return ""


def _why_broken_commit(table: Path, lines: Sequence[bytes], *, is_newest: bool) -> str:
    """Why a commit of `deltalake` or of ours cannot be used. It may be cut off after any line."""
    info = json.loads(lines[0]).get("commitInfo", {})
    last = json.loads(lines[-1])
    if ENDS in info:
        return "is cut off" if last.get("txn", {}).get("appId") != ENDS else ""
    figures = info.get("operationMetrics", {})
    # With a change data feed, the library counts its files too, in deletes and overwrites.
    is_counted = not any(line.startswith(b'{"cdc":') for line in lines)
    counts = [figures[name] for name in _COUNTS if name in figures] if is_counted else []
    actions = [json.loads(line) for line in lines] if counts else []
    added = [action["add"] for action in actions if "add" in action]
    if counts and counts != [len(added), sum("remove" in action for action in actions)]:
        return "is cut off"
    # The library commits a compaction before its files are flushed. The files before are there.
    for file in added if is_newest and info.get("operation") == "OPTIMIZE" else ():
        data = table / unquote(file["path"])
        if not data.exists() or data.stat().st_size != file["size"]:
            return f"needs {file['path']}, which is not whole"
    return ""


def broken_in_log(table: str) -> dict[Path, str]:
    """The files to move aside, so that the log of a table on a local disk can be read again.

    Each has the reason. They are the newest commit and the last checkpoint, if they are broken. A
    checkpoint goes with its commit, and the file that leads to a checkpoint goes with it. All
    earlier commits are there.
    """
    log = Path(table, _LOG)
    names = sorted(path.name for path in log.glob("*"))
    newest = [log / name for name in names if _COMMIT.fullmatch(name)][-1:]
    broken = {commit: why for commit in newest if (why := why_broken(commit))}
    checkpoints = {}
    for checkpoint in [log / name for name in names if _CHECKPOINT.fullmatch(name)][-1:]:
        after = [commit for commit in newest if commit.stem >= checkpoint.name[:20]]
        is_lost = newest and not set(after) - broken.keys()
        of_lost = "is of a commit that is lost" if is_lost else ""
        if why := why_broken(checkpoint) or of_lost:
            checkpoints[checkpoint] = why
    hints = {}
    if (led_to := last_checkpoint(table)) is not None:
        files = [name for name in names if name.startswith(f"{led_to:020}.checkpoint.")]
        if all(log / name in checkpoints for name in files):
            hints[log / LAST_CHECKPOINT] = "leads to a checkpoint that is lost"
    return {**hints, **checkpoints, **broken}


def last_checkpoint(table: str) -> int | None:
    """The version to which the file of the last checkpoint leads, on a disk. None without one."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        return int(json.loads(Path(table, _LOG, LAST_CHECKPOINT).read_text())["version"])
    return None


def refuse_broken_log(table: str) -> None:
    """Raise BrokenFile if files of the log of a table on a local disk must be moved aside."""
    for file, why in broken_in_log(table).items() if "://" not in table else ():
        raise unreadable(file, why, table)


def refuse_broken_commit(table: str, version: int, *, is_newest: bool = True) -> None:
    """Raise BrokenFile if the commit of this version on a local disk is empty or cut off.

    It may be missing: a checkpoint has its files.
    """
    commit = Path(table, _LOG, f"{version:020}.json")
    if "://" not in table and commit.exists():
        refuse_broken(commit, of=table, is_newest=is_newest)


def refuse_broken(file: Path, *, of: str, is_newest: bool = True) -> None:
    """Raise BrokenFile if a file of the folder `of` is broken."""
    if why := why_broken(file, is_newest=is_newest):
        raise unreadable(file, why, of)


def unreadable(file: Path, why: str, of: str) -> BrokenFile:
    """The error for a broken file in the folder `of`, which therefore cannot be read."""
    what = "The Delta table" if Path(of, _LOG).exists() else "The folder"
    return BrokenFile(
        f"{what} {of} cannot be read: {file.relative_to(of)} {why}.",
        unchanged="Nothing was written to it.",
        next_step="Type `backfill reconcile --repair`: it moves the file aside.",
    )


def move_aside(root: str, file: Path) -> None:
    """Move a file or a folder of a local lake into its folder for damaged files."""
    inside = root if file.is_relative_to(root) else file.anchor
    within = Path(root, DAMAGED, file.relative_to(inside))
    places = (within.with_name(f"{within.name}{n or ''}") for n in count())
    place = next(place for place in places if not place.exists())
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(file, place)  # also to another disk
    put_on_disk(str(place.parent))
    put_on_disk(str(file.parent))


def is_aside(root: str, folder: str, beginning: str) -> bool:
    """True if a file of this folder of a local lake was moved aside, by how its name begins."""
    return "://" not in root and any(Path(root, DAMAGED, folder).glob(f"{beginning}*"))
