"""The commits of a Delta table, each under its own version.

`DeltaTable.history` reads the newest commits of the log and numbers them from the version at which the table was opened: wrong
for an earlier version, and for one that another writer has committed after (deltalake 1.6). Here each commit is read from the
file that has its version for a name.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyarrow.fs import FileSystem

from backfill_assets.lake.paths import files_in


def read_commits(folder: str, last: int, first: int = 0) -> list[dict[str, Any]]:
    """What the commits from version `last` down to `first` say of themselves, newest first, with their `version`.

    It ends with the last one that the log still has.
    """
    return list(commits_at(folder, range(last, max(first, 0) - 1, -1)))


def commits_at(folder: str, versions: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Read the commits of `versions` one by one, with their `version`. End at one that the log does not have any more."""
    store = files_in(folder)
    for version in versions:
        info = _commit_info(store, version)
        if info is None:
            return
        yield info | {"version": version}


def _commit_info(store: FileSystem, version: int) -> dict[str, Any] | None:
    """The `commitInfo` of one commit, empty if it has none; None if the log does not have the commit (any more)."""
    try:
        with store.open_input_stream(f"_delta_log/{version:020}.json") as file:
            lines = bytes(file.read()).splitlines()
    except FileNotFoundError:
        return None
    infos = (json.loads(line)["commitInfo"] for line in lines if line.lstrip().startswith(b'{"commitInfo"'))
    return dict(next(infos, {}))
