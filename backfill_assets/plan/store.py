"""Plans in the lake: `_plans/<id>.json`, and the events of each, one small file an event, in `_plans/<id>/`.

A file is written once and never changed, so no two writers can overwrite each other's.
"""

import json
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from pyarrow import fs
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.documents import Documents
from backfill_assets.lake.locks import Locked, file_lock
from backfill_assets.lake.paths import Paths, files_in
from backfill_assets.plan.plan import Plan, read

STAMP = "%Y%m%dT%H%M%S%f"
EVENT = re.compile(r"\d{8}T\d{12}-([a-z_]+)-[0-9a-f]+\.json")
PLANNED, OPEN, ROLLED_BACK = "planned", "open", "rolled_back"
PUBLISHING, PUBLISHED, DISCARDED = "publishing", "published", "discarded"
# The events after which a plan is in another state.
STATES = ("started", "ended", "cancelled", ROLLED_BACK, PUBLISHING, PUBLISHED, DISCARDED)


# Those after which a plan from a shadow is, or is not, in live.
OF_LIVE = (PUBLISHING, PUBLISHED, ROLLED_BACK)


@dataclass(frozen=True)
class Event:
    """An event of a plan: `started`, `requested` (the launch of a chunk, before it is sent), `ended`, `cancelled`,
    `rolled_back`, `publishing` and `published` (from a shadow to live), `discarded` (its shadow was deleted)."""

    at: datetime
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plans:
    """The plans of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def keep(self, plan: Plan) -> None:
        """Write a plan, whole or not at all; one of that id is already the same."""
        try:
            self.read(plan.id)
        except UsageError:  # unknown, or not what was kept any more
            self._write("", plan.id, plan.contents())

    def read(self, plan_id: str) -> Plan:
        """The plan of that id; UsageError if there is none, or it is not what was kept any more."""
        self.refuse_unknown(plan_id)
        with self._files.open_input_stream(f"{plan_id}.json") as file:
            return read(bytes(file.read()), plan_id)

    def refuse_unknown(self, plan_id: str) -> None:
        """UsageError, with the ids of the plans there are, for an unknown id."""
        known = self.ids()
        if plan_id not in known:
            plans = f"Its plans are {', '.join(known)}" if known else "It has none yet: `backfill plan` makes one"
            raise UsageError(f"There is no plan {plan_id} in this lake. Nothing was started. {plans}.")

    def full_id(self, beginning: str) -> str:
        """The id that begins so; UsageError if none does, or several do."""
        matching = [plan_id for plan_id in self.ids() if plan_id.startswith(beginning)]
        if len(matching) > 1:
            raise UsageError(f"Which plan? {', '.join(matching)} begin with {beginning}. Nothing was started. Type more of it.")
        self.refuse_unknown(matching[0] if matching else beginning)
        return matching[0]

    def state(self, plan_id: str) -> str:
        """`planned`, `open` (started and not ended: being carried out, or interrupted), or how it ended last."""
        kind, file = self._last(plan_id)
        if kind == "ended" and file:
            return str(self._event(file).facts.get("ending", kind))
        return OPEN if kind == "started" else kind or PLANNED

    def open(self) -> list[str]:
        """The ids of the plans that are open. Only names of files are read: one that cannot be read concerns its own plan."""
        return [plan_id for plan_id in self.ids() if self._last(plan_id)[0] == "started"]

    def half_published(self) -> list[str]:
        """The ids of the plans whose publication was begun, and neither finished nor taken back."""
        return [plan_id for plan_id in self.ids() if self._last(plan_id, OF_LIVE)[0] == PUBLISHING]

    def _last(self, plan_id: str, among: Collection[str] = STATES) -> tuple[str, fs.FileInfo | None]:
        """The kind and the file of the last event that changed the state of a plan; "" if there is none."""
        kinds = [(file.base_name.split("-")[1], file) for file in self._event_files(plan_id)]
        return next(((kind, file) for kind, file in reversed(kinds) if kind in among), ("", None))

    def note(self, plan_id: str, kind: str, at: datetime, **facts: Any) -> Event:
        """Record an event of a plan, in order after those recorded before, even by a host whose clock is ahead of this one's.

        The name of its file has the order, its contents have the time.
        """
        event = Event(at.astimezone(UTC), kind, facts)
        contents = json.dumps({"at": event.at.isoformat(), "kind": kind, "facts": facts})
        order = event.at
        for file in self._event_files(plan_id)[-1:]:
            last = datetime.strptime(file.base_name.partition("-")[0], STAMP).replace(tzinfo=UTC)
            order = max(order, last + timedelta(microseconds=1))
        self._write(plan_id, f"{order:{STAMP}}-{kind}-{secrets.token_hex(2)}", contents)
        return event

    def events(self, plan_id: str, kind: str = "") -> list[Event]:
        """The events of a plan, or those of one kind, in the order in which they were recorded."""
        return [self._event(file) for file in self._event_files(plan_id) if f"-{kind}" in file.base_name]

    def _event_files(self, plan_id: str) -> list[fs.FileInfo]:
        return sorted(
            (file for file in self._written(plan_id) if EVENT.fullmatch(file.base_name)), key=lambda file: file.base_name
        )

    def _event(self, file: fs.FileInfo) -> Event:
        with self._files.open_input_stream(file.path) as stream:
            contents = bytes(stream.read())
        try:
            event = json.loads(contents)
            return Event(datetime.fromisoformat(event["at"]), event["kind"], event["facts"])
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"{Paths(self.root).plans}/{file.path} cannot be read. Nothing was started. Delete that file: it says only "
                "when and by whom a plan was started or ended."
            ) from None

    @contextmanager
    def exclusive(self, plan_id: str) -> Iterator[None]:
        """Hold the lock for launching a plan's chunks; Guarded if another command holds it.

        In an object store there is no lock: before each launch, the tags of the backfills that run already are looked up.
        """
        paths = Paths(self.root)
        if not paths.is_local:
            yield
            return
        try:
            with file_lock(paths.locks / f"plan.{plan_id}.lock"):
                yield
        except Locked:
            raise Guarded(
                f"Another command is carrying out plan {plan_id}. Nothing was launched. See `backfill watch {plan_id}`."
            ) from None

    def ids(self) -> list[str]:
        return sorted(file.base_name.removesuffix(".json") for file in self._written(""))

    @cached_property
    def _files(self) -> fs.FileSystem:
        return files_in(Paths(self.root).plans)

    def _write(self, folder: str, name: str, contents: str) -> None:
        Documents(Paths(self.root).plans).write(f"{folder}/{name}.json".lstrip("/"), contents)

    # Arrow raises, in spite of `allow_not_found`, for a folder that another process makes at that moment.
    @retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(3), reraise=True)
    def _written(self, folder: str) -> list[fs.FileInfo]:
        """The finished files of a folder; none if there is no such folder."""
        files = self._files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return [file for file in files if file.extension == "json" and not file.base_name.startswith("_")]
