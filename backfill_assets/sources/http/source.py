"""A source that is a rate-limited HTTP service, and the store of its answers.

Only a step that builds days sends requests (`client.py`), and stores the answers in the lake.
Importing a project, its status, plans and rebuilds read the stored answers.

An answer is a file: the rows of one query for one day, in `_answers/<source>/<hash of the
query>/<day>-<rows>-<hash of the rows>.json`. A query is a request without its days, so answers do
not depend on the days that were requested together. Files are written atomically and never changed.
To request a day again, delete its files and rebuild it with --force.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.digest import digest
from backfill_assets.errors import NotFetchedYet, SourceError
from backfill_assets.lake.storage import Documents, Paths
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery, Source, require_usable, uncompared

Query = Mapping[str, str]
Row = Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class HttpSource(Source):
    """A service that answers in JSON, for several days at a time.

    Derive a class that defines the requests and the rows.

    name     names the source in builds, stored answers and BACKFILL_SERVICE_URLS
    url      the address of the service. Rows must not depend on it
    limits   pairs (units, seconds): at most this many units in any span of this many seconds, for
             all processes together
    at_once  the most days in one request

    A day without an answer is not delivered yet: it waits and keeps its rows.
    """

    name: str = field(kw_only=False)
    url: str = field(default="", compare=False, repr=False)
    limits: Sequence[tuple[int, float]] = uncompared(((60, 60.0),))
    at_once: int = uncompared(1)

    @property
    @abstractmethod
    def columns(self) -> str:
        """The columns of `rows` with their types, as SQL."""

    @abstractmethod
    def queries(self) -> list[Query]:
        """Return the requests that a day needs, without the day."""

    def queries_in(self, zone: str) -> list[Query]:
        """Return the requests for days of a time zone, if the service has days of several."""
        return self.queries()

    @abstractmethod
    def of_days(self, first: date, last: date) -> Query:
        """Return the parameters that add these days, both included, to a query."""

    def units(self, query: Query, days: int) -> int:
        """Return the cost of a request for this many days, in units of the limits."""
        return 1

    @abstractmethod
    def parsed(
        self, query: Query, answer: Any, days: Sequence[date]
    ) -> Mapping[date, Sequence[Row]]:
        """Return the rows of an answer by day, without days that the service lacks.

        Raises ValueError for a wrong answer.
        """

    def rows(self, answered: Iterable[Row]) -> Iterable[Row]:
        """Return the rows of a day from the rows of all its answers."""
        return answered

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return the fingerprint of each day's answers, or NotFetchedYet if one is missing."""
        return {
            day: answers if isinstance(answers, SourceError) else self._delivery(day, answers)
            for day, answers in self._answers(area, days).items()
        }

    def _delivery(self, day: date, answers: Sequence[Answer]) -> Delivery:
        fingerprint = digest(*(answer.content for answer in answers))
        return Delivery(fingerprint, {f"{self.name}/{day}": sum(answer.rows for answer in answers)})

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe each file of the day's answers."""
        answers = require_usable(self._answers(area, [day]))[day]
        return [
            f"{area.lake}/_answers/{self.name}/{answer.path}, {answer.rows} rows,"
            f" {answer.content[:12]}"
            for answer in answers
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Estimate the bytes of the answers for `days`."""
        stored = require_usable(self._answers(area, days))
        return sum(100 * answer.rows for answers in stored.values() for answer in answers)

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the stored rows of `days`: `arrival_day DATE` and the `columns`."""
        store = AnswerStore(area, self.name)
        rows = [
            (day, *row)
            for day, answers in require_usable(self._answers(area, days)).items()
            for row in self.rows([row for answer in answers for row in store.read(answer)])
        ]
        return spark.createDataFrame(rows, f"arrival_day DATE, {self.columns}")

    def _answers(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, list[Answer] | SourceError]:
        """Return the answers of each of `days`, or NotFetchedYet if one is missing."""
        stored = AnswerStore(area, self.name).stored(self.queries_in(area.zone))
        return {
            day: stored.get(day)
            or NotFetchedYet(
                f"{self.name} has no answer for {day} yet: a run that builds the day asks for it"
            )
            for day in days
        }


class Answer(NamedTuple):
    """A stored answer to a query for a day: its file, its number of rows, and their hash."""

    path: str
    rows: int
    content: str


@dataclass(frozen=True)
class AnswerStore:
    """The stored answers of the source `name`."""

    area: LandingArea
    name: str

    def stored(self, queries: Sequence[Query]) -> dict[date, list[Answer]]:
        """Return the answers to `queries`, in order, for each day with all answers."""
        names = self._documents.by_folder() if self.area.lake else {}
        by_query = [_by_day(key, names.get(key, ())) for key in map(_query_key, queries)]
        days = {*by_query[0]}.intersection(*by_query) if by_query else set()
        return {day: [answers[day] for answers in by_query] for day in sorted(days)}

    def read(self, answer: Answer) -> list[list[Any]]:
        """Return the rows of an answer. Raises SourceError if they do not match their hash."""
        with suppress(ValueError, KeyError, TypeError):
            rows: list[list[Any]] = json.loads(self._documents.read(answer.path))["rows"]
            if _hash_of(rows) == answer.content:
                return rows
        file = f"{self._documents.folder}/{answer.path}"
        raise SourceError(
            f"the answer in {file} was changed after it was stored.",
            next_step="Delete it and rebuild the day with --force to ask for it again.",
        )

    def write(self, query: Query, day: date, rows: Sequence[Sequence[Any]]) -> None:
        """Store the rows that answer `query` for `day`, with the query."""
        content = _hash_of(rows)
        document = json.dumps({"query": dict(query), "day": day.isoformat(), "rows": rows})
        self._documents.write(
            f"{_query_key(query)}/{day.isoformat()}-{len(rows)}-{content}.json", document
        )

    @property
    def _documents(self) -> Documents:
        return Documents(Paths(self.area.lake).answers(self.name))


def _hash_of(rows: Sequence[Sequence[Any]]) -> str:
    return digest(json.dumps(rows))


def _query_key(query: Query) -> str:
    """Return the folder name of a query's answers."""
    return digest(json.dumps(sorted(query.items())), length=16)


def _by_day(folder: str, names: Iterable[str]) -> dict[date, Answer]:
    """Return the answers in a folder by day.

    Processes that share no lock may store two answers for one day. Then the same one is always
    used.
    """
    answers: dict[date, Answer] = {}
    for name in names:
        with suppress(ValueError):
            day = date.fromisoformat(name[:10])
            rows, content = name[11:].removesuffix(".json").split("-")
            answers.setdefault(day, Answer(f"{folder}/{name}", int(rows), content))
    return answers
