"""Judge a history by its writes and its events alone. Nothing of the package is imported.

It reads the logs, documents and rows that were written, and the events that actors noted.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

TABLES = ("raw/a", "raw/b")
# Objects that are overwritten. All others are written once.
_MUTABLE = re.compile(
    r"(.*/)?(_locks|_table_facts)/|.*/(_known|_last_checkpoint|[a-z]+\.json|.*\.checkpoint\.parquet)$"
)
_ACTS = "backfill_assets.acts"
_COMMITTED = ("accepted", "restored", "removed")


@dataclass(frozen=True)
class Event:
    """An acknowledgement or an observation of an actor, after so many writes to the store."""

    moment: int
    actor: str
    kind: str
    facts: dict[str, Any]


class Written(Protocol):
    """A write of a file, or its deletion (no contents), or what a cut made of it."""

    @property
    def path(self) -> str: ...
    @property
    def contents(self) -> bytes | None: ...
    @property
    def is_cut(self) -> bool: ...


_ROWS: dict[bytes, Any] = {}


def _rows(contents: bytes) -> Any:
    """The rows of a data file: the values of `n`, or the records of a ledger."""
    if contents not in _ROWS:
        if len(_ROWS) > 5_000:
            _ROWS.clear()
        if contents[:6] == b"ARROW1":
            names = ["day", "run", "outcome", "at", "delta_version"]
            _ROWS[contents] = pa.ipc.open_file(contents).read_all().select(names).to_pylist()
        else:
            table = pq.read_table(pa.BufferReader(contents), use_threads=False)
            _ROWS[contents] = table["n"].to_pylist()
    return _ROWS[contents]


class Log:
    """The log of a table: its commits, and its files by day at each version."""

    def __init__(
        self, files: Mapping[str, bytes], table: str, data: Mapping[str, bytes] | None = None
    ) -> None:
        pattern = re.compile(re.escape(table) + r"/_delta_log/(\d{20})\.(json|checkpoint\.parquet)")
        found = {(int(m[1]), m[2]): files[p] for p in files if (m := pattern.fullmatch(p))}
        self.table = table
        self.data = files if data is None else data
        numbers = range(max((number for number, _ in found), default=-1) + 1)
        # A checkpoint stands for a lost commit: it has all files.
        texts = [
            found.get((number, "json"), found.get((number, "checkpoint.parquet")))
            for number in numbers
        ]
        self.lost = [number for number in numbers if (number, "json") not in found]
        self.is_whole = None not in texts
        self.commits = [[json.loads(line) for line in (text or b"").splitlines()] for text in texts]
        self.states: list[dict[str, dict[str, int]]] = []
        for number, commit in enumerate(self.commits):
            adds = {day: dict(of) for day, of in (self.states or [{}])[-1].items()}
            if number in self.lost:
                adds = {}
            for action in commit:
                if entry := action.get("add") or action.get("remove"):
                    [day] = entry["partitionValues"].values()
                    of_day = adds.setdefault(day, {})
                    if "add" in action:
                        of_day[entry["path"]] = entry["size"]
                    else:
                        of_day.pop(entry["path"], None)
            self.states.append({day: of for day, of in adds.items() if of})

    def values(self, version: int) -> dict[str, list[int]]:
        """The values of the rows of each day at a version."""
        return {
            day: sorted(n for path in files for n in self._rows(path))
            for day, files in sorted(self.states[version].items())
        }

    def _rows(self, path: str) -> list[int]:
        contents = self.data.get(f"{self.table}/{unquote(path)}")
        return [-1] if contents is None else _rows(contents)

    def builds(self, version: int) -> list[dict[str, Any]]:
        """The builds that a commit carries."""
        texts = (
            action.get("commitInfo", {}).get("userMetadata") for action in self.commits[version]
        )
        text = next(filter(None, texts), "{}")
        return json.loads(text).get("builds", []) if text.startswith("{") else []

    def act(self, version: int) -> int:
        """The number of the act that made a commit; 0 for other commits."""
        marks = (action["txn"] for action in self.commits[version] if "txn" in action)
        return next((mark["version"] for mark in marks if mark["appId"] == _ACTS), 0)


@dataclass(frozen=True)
class Checker:
    """A history: the files before, the writes, and the events. `find` says what is wrong."""

    before: Mapping[str, bytes]
    written: Sequence[Written]
    events: Sequence[Event]

    @cached_property
    def ever(self) -> dict[str, bytes]:
        """The last whole contents of each file that was there at any time."""
        return {
            **self.before,
            **{w.path: w.contents for w in self.written if w.contents is not None},
        }

    @cached_property
    def last(self) -> dict[str, bytes]:
        """The files at the end."""
        files = dict(self.before)
        for write in self.written:
            if write.contents is None:
                files.pop(write.path, None)
            else:
                files[write.path] = write.contents
        return files

    @cached_property
    def logs(self) -> dict[str, Log]:
        return {table: Log(self.last, table, self.ever) for table in TABLES}

    def documents(self, folder: str) -> dict[str, Any]:
        """The documents of a folder at the end, by name without `.json`."""
        pattern = re.compile(folder + r"/(\d{9}[-\w]*)\.json")
        return {
            m[1]: json.loads(self.last[p]) for p in sorted(self.last) if (m := pattern.fullmatch(p))
        }

    @cached_property
    def releases(self) -> dict[int, Any]:
        return {int(name): release for name, release in self.documents("_releases").items()}

    def find(self) -> Iterator[str]:
        yield from self._overwritten()
        yield from self._wrong_commits()
        yield from self._wrong_ledger()
        yield from self._wrong_acts()
        yield from self._wrong_releases()
        for event in self.events:
            yield from (f"{event.actor} {event.kind}: {why}" for why in self._wrong_event(event))
        yield from self._wrong_end()

    def _overwritten(self) -> Iterator[str]:
        seen: dict[str, bytes | None] = dict(self.before)
        for write in self.written:
            # A broken file that was moved aside may be written again.
            if "_damaged/" in write.path:
                seen.pop(write.path.replace("_damaged/", ""), None)
            if write.is_cut or _MUTABLE.match(write.path):
                seen[write.path] = write.contents
            elif write.contents is not None:
                there = seen.get(write.path)
                if there and there != write.contents:
                    yield f"{write.path} was overwritten"
                seen[write.path] = write.contents

    def _wrong_commits(self) -> Iterator[str]:
        """A commit changes the days of its builds, to their rows, and no other day."""
        for table, log in self.logs.items():
            if log.lost:
                yield f"the log of {table} lacks the commits {log.lost}"
                return
            for version in range(len(log.commits)):
                values = log.values(version)
                builds = {b["day"]: b for b in log.builds(version) if b["outcome"] in _COMMITTED}
                earlier = log.values(version - 1) if version else {}
                changed = {d for d in {*values, *earlier} if values.get(d) != earlier.get(d)}
                for day in changed - builds.keys():
                    yield f"{table} version {version} changed {day}, which it did not build"
                for day, build in builds.items():
                    is_removed = build["outcome"] == "removed"
                    rows = None if is_removed else [int(build["fingerprint"])] * 2
                    if values.get(day) != rows:
                        found = values.get(day)
                        yield f"{table} version {version} has {found} on {day}, not {rows}"

    def _wrong_ledger(self) -> Iterator[str]:
        """The ledger has exactly the builds of the commits."""
        recorded = set[tuple[Any, ...]]()
        log = Log(self.last, "_ledger")
        for table, files in (log.states or [{}])[-1].items():
            for path in files:
                contents = self.last.get(f"_ledger/{unquote(path)}")
                if contents is None:
                    yield f"the ledger's {path} is gone"
                    continue
                recorded |= {
                    (table, str(r["day"]), r["run"], r["at"].timestamp(), r["delta_version"])
                    for r in _rows(contents)
                    if r["outcome"] in _COMMITTED
                }
        committed = set(self.committed)
        for build in recorded - committed:
            yield f"the ledger has {build}, and no commit"
        for build in committed - recorded:
            yield f"the commits have {build}, and the ledger lacks it"

    @cached_property
    def committed(self) -> list[tuple[Any, ...]]:
        return [
            (table, b["day"], b["run"], _time(b["at"]), version)
            for table, log in self.logs.items()
            for version in range(len(log.commits))
            for b in log.builds(version)
        ]

    def _wrong_acts(self) -> Iterator[str]:
        """Each act is decided, commits each of its tables once or none, and ends."""
        documents = self.documents("_acts")
        numbers = sorted({int(name[:9]) for name in documents})
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"the acts are {numbers}"
        for number in numbers:
            act = documents[f"{number:09d}"]["act"]
            decided = documents.get(f"{number:09d}-decided")
            if decided is None:
                yield f"act {number} is not decided"
                continue
            is_committed = decided["entry"]["stage"] == "committing"
            for table, log in self.logs.items():
                of_table = [c for c in act["changes"] if c["table"] == table]
                has_files = any(b["outcome"] in _COMMITTED for c in of_table for b in c["builds"])
                commits = [v for v in range(len(log.commits)) if log.act(v) == number]
                if len(commits) != (1 if is_committed and has_files else 0):
                    stage = decided["entry"]["stage"]
                    yield f"act {number} ({stage}) has the commits {commits} of {table}"
            ended = documents.get(f"{number:09d}-ended")
            if is_committed and ended is None:
                yield f"act {number} has not ended"
            release = ended and ended["entry"]["release"]
            if release and self.releases.get(release, {}).get("kind") != act["kind"]:
                yield f"act {number} has not made release {release}"

    def _wrong_releases(self) -> Iterator[str]:
        if [*self.releases] != list(range(1, len(self.releases) + 1)):
            yield f"the releases are {[*self.releases]}"
        for number, release in self.releases.items():
            of_a, of_b = (self._values(release, table) for table in TABLES)
            if of_a != of_b:
                yield f"release {number} has {of_a} in A and {of_b} in B"

    def _values(self, release: Any, table: str) -> dict[str, list[int]] | None:
        """The rows that a release or a preview gives readers of a table."""
        path, version = release["tables"][table][:2]
        log = self.logs.get(path) or Log(self.ever, path)
        if version >= len(log.commits):
            return None
        values = log.values(version)
        if previewed := release["previewed"].get(table):
            path, version = previewed["version"][:2]
            own = Log(self.ever, path)
            of_plan = own.values(version) if version < len(own.commits) else {}
            for first, last in previewed["spans"]:
                values = {d: v for d, v in values.items() if not first <= d <= last}
                values |= {d: v for d, v in of_plan.items() if first <= d <= last}
        return dict(sorted(values.items()))

    def _wrong_event(self, event: Event) -> Iterator[str]:
        facts = event.facts
        for table, day, run, outcome, at, _ in facts.get("builds", ()):
            is_live = not facts.get("place")
            build = (table, day, run, _time(at))
            if is_live and outcome in _COMMITTED and build not in {c[:4] for c in self.committed}:
                yield f"{build} is lost"
        if event.kind in ("published", "rolled back", "released") and facts["release"]:
            release = self.releases.get(facts["release"])
            if release is None:
                yield f"release {facts['release']} is lost"
            elif (
                event.kind == "published"
                and not facts["left"]
                and facts["plan"] not in release["plans"]
            ):
                yield f"release {facts['release']} does not publish {facts['plan']}"
            elif "versions" in facts and facts["versions"] != {
                name: version[1] for name, version in release["tables"].items()
            }:
                yield f"release {facts['release']} has other versions"
        if event.kind == "read":
            yield from self._wrong_read(facts)
        if event.kind == "discarded" and any(
            p.startswith(f"_shadow/{facts['plan']}/") for p in self.last
        ):
            yield f"the shadow of {facts['plan']} is there"

    def _wrong_read(self, facts: Mapping[str, Any]) -> Iterator[str]:
        """A reader gets what its channel had at a moment while it opened."""
        got = (facts["release"], facts["preview"])
        allowed = set[tuple[int, str]]()
        for moment in range(facts["began"], facts["opened"] + 1):
            pointers = self._timeline("_channels").at(moment).get("pointers", {})
            own = pointers.get(facts["channel"], {})
            pinned = own.get("release") or pointers.get("stable", {}).get("release", 0)
            newest = {
                self._timeline("_releases").at(later)["number"]
                for later in range(moment, facts["opened"] + 1)
            }
            allowed |= {(number, "") for number in ({pinned} if pinned else newest)}
            if own.get("plan"):
                # A preview ends with its shadow. Then its readers follow.
                allowed |= {(number, own["plan"]) for number in self.releases}
        if got not in allowed:
            yield f"got {got}, and not one of {sorted(allowed)}"
        if facts["preview"]:
            path = f"_shadow/{facts['preview']}/preview.json"
            of_plan = [
                json.loads(w.contents) for w in self.written if w.path == path and w.contents
            ]
            found = [{t: self._values(p, t) for t in TABLES} for p in of_plan]
        else:
            release = self.releases.get(facts["release"])
            found = [{t: self._values(release, t) for t in TABLES}] if release else []
        if facts["values"] not in found:
            yield f"got {facts['values']} as {got}, which has {found}"

    def _timeline(self, folder: str) -> "_Timeline":
        return self._timelines[folder]

    @cached_property
    def _timelines(self) -> dict[str, "_Timeline"]:
        return {f: _Timeline(self.before, self.written, f) for f in ("_channels", "_releases")}

    def _wrong_end(self) -> Iterator[str]:
        """After the way out, readers get what was built last."""
        nights = [e for e in self.events if e.actor == "after" and e.kind == "built"]
        reads = [e for e in self.events if e.actor == "after" and e.kind == "read"]
        last = {
            (table, day): [int(fingerprint)] * 2
            for event in nights
            if not event.facts["place"]
            for table, day, _, _, _, fingerprint in event.facts["builds"]
        }
        if len(reads) < 2:
            yield f"there is no way out: {[(e.kind, e.facts) for e in self.events[-3:]]}"
        for event in reads:
            values = {(t, d): v for t, of in event.facts["values"].items() for d, v in of.items()}
            if values != last:
                yield f"in the end readers get {values}, and not {last}"


class _Timeline:
    """The newest document of a folder at each moment."""

    def __init__(
        self, before: Mapping[str, bytes], written: Sequence[Written], folder: str
    ) -> None:
        pattern = re.compile(folder + r"/\d{9}\.json")
        present = {path: contents for path, contents in before.items() if pattern.fullmatch(path)}
        self._newest = [_newest(present)]
        for write in written:
            if pattern.fullmatch(write.path):
                present.pop(write.path, None)
                if write.contents:
                    present[write.path] = write.contents
                self._newest.append(_newest(present))
            else:
                self._newest.append(self._newest[-1])

    def at(self, moment: int) -> Any:
        return self._newest[min(moment, len(self._newest) - 1)]


def _newest(documents: Mapping[str, bytes]) -> Any:
    """The document with the highest number; empty for none, and for one that is torn."""
    with suppress(ValueError):
        return json.loads(documents[max(documents)]) if documents else {}
    return {}


def _time(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def check(
    before: Mapping[str, bytes], written: Sequence[Written], events: Sequence[Event]
) -> list[str]:
    """What is wrong with a history; empty if nothing is."""
    found = list[str]()
    try:
        found += Checker(before, written, events).find()
    except (ValueError, KeyError, pa.ArrowException) as error:
        found.append(f"the lake cannot be read: {type(error).__name__}: {error}")
    return found
