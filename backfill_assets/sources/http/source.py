"""The store of answers: what a service has said, kept in the lake for good, so that a rebuild asks
nothing twice.

A file is what one query said of one day: `_answers/<source>/<hash of the query>/<day>-<rows>-<hash
of the rows>.json`. The query is the request without its days, so that it does not matter which days
were asked for together. Files are written whole or not at all, and never changed. To have a day
asked for again, delete its files, and rebuild it with force.

A source that is a service, asked over HTTP: limited in how much it may be asked, slow, and at times
not there.

Only a step that builds days asks (sources/http/client.py), and keeps what was answered in the lake.
All else, and each rebuild, reads what is kept: no request is sent by importing a project, by its
status, or by making a plan.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.errors import NotFetchedYet, SourceError
from backfill_assets.lake.storage import Documents, Paths
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery, Source

Query = Mapping[str, str]
Row = Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class HttpSource(Source):
    """A service that answers in JSON, for several days at a time. Derive a class that says what is
    asked, and what rows are.

    name     under which builds record what they were made from, answers are kept, and
             BACKFILL_SERVICE_URLS names an address
    url      where the service is asked; what comes of it may not depend on that
    limits   how much it may be asked: of each, so many units in any span of so many seconds, all
             processes together
    at_once  the most days in one request

    A day that was not asked for, or not answered, is not delivered yet: it waits, and keeps what it
    has.
    """

    name: str = field(kw_only=False)
    url: str = field(default="", compare=False, repr=False)
    limits: Sequence[tuple[int, float]] = field(default=((60, 60.0),), compare=False)
    at_once: int = field(default=1, compare=False)

    @property
    @abstractmethod
    def columns(self) -> str:
        """The columns of `rows` with their types, as SQL."""

    @abstractmethod
    def queries(self) -> list[Query]:
        """The requests that together are asked of a day, without the day."""

    @abstractmethod
    def of_days(self, first: date, last: date) -> Query:
        """What a request for these days, both included, has beside its query."""

    def units(self, query: Query, days: int) -> int:
        """What a request for so many days costs of each limit."""
        return 1

    @abstractmethod
    def parsed(
        self, query: Query, answer: Any, days: Sequence[date]
    ) -> Mapping[date, Sequence[Row]]:
        """The rows of an answer by day, without the days that the service has not got yet.
        ValueError for a wrong answer.
        """

    def rows(self, answered: Iterable[Row]) -> Iterable[Row]:
        """The rows of a day, of those that all queries were answered with."""
        return answered

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """The fingerprint of each day's answers; NotFetchedYet where they are not all there."""
        stored = AnswerStore(area, self.name).stored(self.queries())
        return {
            day: self._delivery(day, stored[day]) if day in stored else self._awaited(day)
            for day in days
        }

    def _delivery(self, day: date, answers: Sequence[Answer]) -> Delivery:
        fingerprint = hashlib.sha256(
            "\n".join(answer.content for answer in answers).encode()
        ).hexdigest()[:32]
        return Delivery(fingerprint, {f"{self.name}/{day}": sum(answer.rows for answer in answers)})

    def _awaited(self, day: date) -> NotFetchedYet:
        return NotFetchedYet(
            f"{self.name} has no answer for {day} yet: a run that builds the day asks for it"
        )

    def described(self, area: LandingArea, day: date) -> list[str]:
        """The files of the day's answers, each as a sentence."""
        files = self._stored(area, [day])[day]
        return [
            f"{area.lake}/_answers/{self.name}/{each.path}, {each.rows} rows, {each.content[:12]}"
            for each in files
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """About the bytes of the answers for `days`."""
        stored = self._stored(area, days)
        return sum(100 * answer.rows for answers in stored.values() for answer in answers)

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """`arrival_day DATE` and the `columns`, of each of `days`, as they were answered once."""
        answers = AnswerStore(area, self.name)
        stored = self._stored(area, days)
        answered = {
            day: [row for each in of_day for row in answers.read(each)]
            for day, of_day in stored.items()
        }
        rows = [(day, *row) for day, of_day in answered.items() for row in self.rows(of_day)]
        return spark.createDataFrame(rows, f"arrival_day DATE, {self.columns}")

    def _stored(self, area: LandingArea, days: Sequence[date]) -> dict[date, list[Answer]]:
        """The answers of each of `days`; raises NotFetchedYet if one has not all of them."""
        stored = AnswerStore(area, self.name).stored(self.queries())
        for day in days:
            if day not in stored:
                raise self._awaited(day)
        return {day: stored[day] for day in days}


class Answer(NamedTuple):
    """What is stored of a query and a day: the place of the file, how many rows, and their hash."""

    path: str
    rows: int
    content: str


@dataclass(frozen=True)
class AnswerStore:
    """The answers of the service that the source `name` asks."""

    area: LandingArea
    name: str

    def stored(self, queries: Sequence[Query]) -> dict[date, list[Answer]]:
        """The answers to all of `queries`, in their order, of each day that has them all."""
        names = self._documents.names_by_folder() if self.area.lake else {}
        by_query = [_by_day(key, names.get(key, ())) for key in map(_query_key, queries)]
        days = {*by_query[0]}.intersection(*by_query) if by_query else set()
        return {day: [answers[day] for answers in by_query] for day in sorted(days)}

    def read(self, answer: Answer) -> list[list[Any]]:
        """The rows of an answer. SourceError if they are not those that its name has the hash of."""
        with suppress(ValueError, KeyError, TypeError):
            rows: list[list[Any]] = json.loads(self._documents.read(answer.path))["rows"]
            if _hash_of(rows) == answer.content:
                return rows
        file = f"{self._documents.folder}/{answer.path}"
        raise SourceError(
            f"the answer in {file} was changed after it was stored.",
            next_step="Delete it and rebuild the day with --force to ask for it again.",
        )

    def keep(self, query: Query, day: date, rows: Sequence[Sequence[Any]]) -> None:
        """Store the rows that `query` was answered with for `day`, and what was asked."""
        content = _hash_of(rows)
        document = json.dumps({"query": dict(query), "day": day.isoformat(), "rows": rows})
        self._documents.write(
            f"{_query_key(query)}/{day.isoformat()}-{len(rows)}-{content}.json", document
        )

    @property
    def _documents(self) -> Documents:
        return Documents(Paths(self.area.lake).answers(self.name))


def _hash_of(rows: Sequence[Sequence[Any]]) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32]


def _query_key(query: Query) -> str:
    """The folder of a query's answers."""
    return hashlib.sha256(json.dumps(sorted(query.items())).encode()).hexdigest()[:16]


def _by_day(folder: str, names: Sequence[str]) -> dict[date, Answer]:
    """The answers in a folder. Of two of one day, which processes that share no lock may get,
    always the same one is taken.
    """
    answers: dict[date, Answer] = {}
    for name in names:
        with suppress(ValueError):
            day = date.fromisoformat(name[:10])
            rows, content = name[11:].removesuffix(".json").split("-")
            answers.setdefault(day, Answer(f"{folder}/{name}", int(rows), content))
    return answers
