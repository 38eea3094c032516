"""The store of answers: what a service has said, kept in the lake for good, so that a rebuild asks nothing twice.

A file is what one query said of one day: `_answers/<source>/<hash of the query>/<day>-<rows>-<hash of the rows>.json`. The
query is the request without its days, so that it does not matter which days were asked for together. Files are written whole or
not at all, and never changed. To have a day asked for again, delete its files, and rebuild it with force.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

from backfill_assets.errors import SourceError
from backfill_assets.lake.documents import Documents
from backfill_assets.lake.paths import Paths
from backfill_assets.sources.area import LandingArea

Query = Mapping[str, str]


class Answer(NamedTuple):
    """What is stored of a query and a day: the place of the file, how many rows, and their hash."""

    path: str
    rows: int
    content: str


@dataclass(frozen=True)
class Answers:
    """The answers of the service that the source `name` asks."""

    area: LandingArea
    name: str

    def stored(self, queries: Sequence[Query]) -> dict[date, list[Answer]]:
        """The answers to all of `queries`, in their order, of each day that has them all."""
        names = self._documents.names_by_folder() if self.area.lake else {}
        by_query = [_by_day(key, names.get(key, ())) for key in map(key_of, queries)]
        days = {*by_query[0]}.intersection(*by_query) if by_query else set()
        return {day: [answers[day] for answers in by_query] for day in sorted(days)}

    def read(self, answer: Answer) -> list[list[Any]]:
        """The rows of an answer. SourceError if they are not those that its name has the hash of."""
        with suppress(ValueError, KeyError, TypeError):
            rows: list[list[Any]] = json.loads(self._documents.read(answer.path))["rows"]
            if _hash_of(rows) == answer.content:
                return rows
        file = f"{self._documents.folder}/{answer.path}"
        again = "Delete it, and rebuild the day with --force, to have it asked for again"
        raise SourceError(f"the answer in {file} was changed since it was kept. {again}")

    def keep(self, query: Query, day: date, rows: Sequence[Sequence[Any]]) -> None:
        """Store the rows that `query` was answered with for `day`, and what was asked."""
        content = _hash_of(rows)
        document = json.dumps({"query": dict(query), "day": day.isoformat(), "rows": rows})
        self._documents.write(f"{key_of(query)}/{day.isoformat()}-{len(rows)}-{content}.json", document)

    @property
    def _documents(self) -> Documents:
        return Documents(Paths(self.area.lake).answers(self.name))


def _hash_of(rows: Sequence[Sequence[Any]]) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32]


def key_of(query: Query) -> str:
    """The folder of a query's answers."""
    return hashlib.sha256(json.dumps(sorted(query.items())).encode()).hexdigest()[:16]


def _by_day(folder: str, names: Sequence[str]) -> dict[date, Answer]:
    """The answers in a folder. Of two of one day, which processes that share no lock may get, always the same one is taken."""
    answers: dict[date, Answer] = {}
    for name in names:
        with suppress(ValueError):
            day = date.fromisoformat(name[:10])
            rows, content = name[11:].removesuffix(".json").split("-")
            answers.setdefault(day, Answer(f"{folder}/{name}", int(rows), content))
    return answers
