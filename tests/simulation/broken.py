"""Promises of the package that are removed on purpose, to see that the checker can fail."""

from collections.abc import Callable
from typing import Any

import obstore

from backfill_assets.lake import acts, commit, durable, file_commit, numbered_documents


def _commit_overwrites() -> list[tuple[Any, str, Any]]:
    """A commit that overwrites another one: no compare-and-swap."""
    from tests.simulation.store import StoreLog

    def add(log: Any, path: str, contents: bytes) -> bool:
        log.write(path, contents)
        return True

    return [(StoreLog, "add", add)]


def _number_twice() -> list[tuple[Any, str, Any]]:
    """A document that overwrites another one with the same number."""

    def put_new(store: Any, path: str, contents: bytes) -> str:
        obstore.put(store, path, contents)
        return "etag"

    return [(numbered_documents, "put_new", put_new)]


def _lost_answer_is_failure() -> list[tuple[Any, str, Any]]:
    """A commit whose answer was lost counts as not made."""
    return [(commit, "version_with", lambda *_, **__: None)]


def _no_fence() -> list[tuple[Any, str, Any]]:
    """An act without fences."""
    return [(acts.FileCommit, "fence", lambda files, table: None)]


def _act_is_not_finished() -> list[tuple[Any, str, Any]]:
    """A writer commits although an act was begun, and nobody finishes it."""
    from backfill_assets.lake.recorded_acts import Acts

    return [(Acts, "unfinished", lambda acts: None)]


def _no_fsync() -> list[tuple[Any, str, Any]]:
    """What is acknowledged is not on the disk."""
    return [(durable, "flush", lambda place: None)]


def _commits_not_synced() -> list[tuple[Any, str, Any]]:
    """Commits of tables are not on the disk before the ledger, the act and the release."""
    return [(file_commit, "put_log_on_disk", lambda table, **_: None)]


BROKEN: dict[str, Callable[[], list[tuple[Any, str, Any]]]] = {
    "commit-overwrites": _commit_overwrites,
    "number-twice": _number_twice,
    "lost-answer-is-failure": _lost_answer_is_failure,
    "no-fence": _no_fence,
    "no-fsync": _no_fsync,
    "commits-not-synced": _commits_not_synced,
    "act-is-not-finished": _act_is_not_finished,
}
