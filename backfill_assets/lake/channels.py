"""The channels: numbered documents that say what readers get (`_channels/000000007.json`).

The newest document has the pointers of all channels, and the retired releases. Without a document,
all channels follow: their readers get the newest release. Moving a pointer and retiring releases
change no release.

A change is a compare-and-swap: it takes the next number (`lake/numbered_documents.py`), on a disk
and in an object store. All channels share one sequence of documents: `candidate` follows `stable`,
and a release is retired only if no channel has it. The earlier documents say which releases readers
had.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from backfill_assets.errors import Conflict, UsageError
from backfill_assets.lake.numbered_documents import NumberedDocuments
from backfill_assets.tries import again_after

# The channel of readers that name no channel, and the channel of a few readers who try a plan
# first.
STABLE = "stable"
CANDIDATE = "candidate"
# The kinds of a change:
POINTED = "channel"  # moves the pointer of a channel
RETIRED = "retired"  # retires releases
SWITCHED = "switch"  # gives readers of `stable` another table

_ATTEMPTS = 20
_BEFORE = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Pointer:
    """What readers of a channel get: the newest release, unless one of the three is set.

    `release`: the release to which they are pinned. `plan`: the plan whose preview they get.
    `switches`: the table that readers get, by the name that they ask for. `pinned_switches`: the
    same while they are pinned. `who`, `reason` and `at` belong to the last move. Readers of other
    channels than `stable` follow `stable`.
    """

    release: int = 0
    plan: str = ""
    switches: Mapping[str, str] = field(default_factory=dict)
    who: str = ""
    reason: str = ""
    at: datetime | None = None
    pinned_switches: Mapping[str, str] | None = None

    @property
    def follows(self) -> bool:
        """True if readers get each new release."""
        return not self.release and not self.plan


def _ranges(retired: Mapping[int, date]) -> list[tuple[int, int, str]]:
    """Ranges of releases that were retired on the same day: first, last and day."""
    ranges: list[tuple[int, int, str]] = []
    for number, day in sorted(retired.items()):
        first, last, on = ranges[-1] if ranges else (0, 0, "")
        if (last, on) == (number - 1, day.isoformat()):
            ranges[-1] = (first, number, on)
        else:
            ranges.append((number, number, day.isoformat()))
    return ranges


def _numbers(ranges: Iterable[tuple[int, int, str]]) -> dict[int, str]:
    return {number: on for first, last, on in ranges for number in range(first, last + 1)}


# Each document has all releases that were retired earlier.
_Retired = Annotated[Mapping[int, date], PlainSerializer(_ranges), BeforeValidator(_numbers)]


@dataclass(frozen=True)
class Channels:
    """What readers of the channels get since the change `number` (0: no change yet).

    `newest` is the newest release at the time of the change. `pointers` has the channels with a
    pin, a preview or switches. `retired` has the releases whose files may be gone, with the day of
    their retirement.
    """

    number: int = 0
    at: datetime = _BEFORE
    who: str = ""
    reason: str = ""
    kind: str = ""
    newest: int = 0
    pointers: Mapping[str, Pointer] = field(default_factory=dict)
    retired: _Retired = field(default_factory=dict)

    def pointer(self, channel: str) -> Pointer:
        return self.pointers.get(channel, Pointer())

    def pinned(self, channel: str) -> int:
        """The release to which readers of a channel are pinned; 0 if they follow."""
        return self.pointer(channel).release or self.pointer(STABLE).release

    def with_preview(self, plan: str) -> list[str]:
        """The channels whose readers get the preview of a plan."""
        return [channel for channel, pointer in self.pointers.items() if pointer.plan == plan]

    def numbers(self, newest: int) -> dict[str, int]:
        """The release that readers of each channel get, if `newest` is the newest one."""
        return {channel: self.pinned(channel) or newest for channel in (STABLE, *self.pointers)}

    def switches_of(self, channel: str) -> dict[str, str]:
        """The switches for readers of a channel: those of `stable`, changed by the channel's own.

        Pinned readers get the switches of their release, and later ones of their channel.
        """
        pointer = self.pointer(channel)
        if pointer.pinned_switches is not None:
            return dict(pointer.pinned_switches)
        of_stable = {} if channel == STABLE else self.switches_of(STABLE)
        return {**of_stable, **pointer.switches}


_CHANNELS = TypeAdapter(Channels)


@dataclass(frozen=True)
class ChannelHistory:
    """The history of the channels, in the lake at `root`."""

    root: str

    @property
    def documents(self) -> NumberedDocuments:
        return NumberedDocuments(self.root, "_channels")

    def now(self) -> Channels:
        """What readers get now."""
        newest = self.documents.newest()
        return _CHANNELS.validate_json(*self.documents.read([newest])) if newest else Channels()

    def all(self) -> list[Channels]:
        """The channels before the first change, and after each change, oldest first."""
        documents = self.documents
        changes = documents.read(documents.listed())
        return [Channels(), *map(_CHANNELS.validate_json, changes)]

    def newest_release(self) -> int:
        """The number of the newest release; 0 if there is none."""
        newest = NumberedDocuments(self.root, "_releases").newest()
        return newest.number if newest else 0

    def had(self, channel: str, number: int) -> Channels | None:
        """What all readers got when a channel last got a release; None if never."""
        newest = self.newest_release()
        for channels in reversed(self.all()):
            pinned = channels.pinned(channel)
            if number == pinned or (not pinned and channels.newest <= number <= newest):
                return channels
            newest = channels.newest
        return None

    def move(
        self,
        after: Channels,
        channel: str,
        pointer: Pointer,
        *,
        who: str,
        reason: str,
        kind: str = POINTED,
    ) -> Channels:
        """Move the pointer of a channel.

        A switch does not change who pinned the readers. Without a `reason`, the recorded reason
        names the pointer's new target. Raises Conflict, and changes nothing, if `after` is no
        longer the newest change.
        """
        now = after.pointer(channel)
        if (pointer.release, pointer.plan) != (now.release, now.plan):
            pointer = replace(pointer, who=who, reason=reason, at=datetime.now(UTC))
        pointers = {
            name: moved
            for name, moved in {**after.pointers, channel: pointer}.items()
            if not moved.follows or moved.switches
        }
        why = reason or (f"preview of plan {pointer.plan}" if pointer.plan else "")
        return self._change(after, kind, who, why, pointers=pointers)

    def retire(
        self, after: Channels, numbers: Iterable[int], on: date, *, who: str, why: str
    ) -> Channels:
        """Retire the given releases that no channel has. They can no longer be read.

        Raises as `move` does.
        """
        had = after.numbers(self.newest_release()).values()
        retired = {**after.retired, **dict.fromkeys(set(numbers).difference(had), on)}
        return self._change(after, RETIRED, who, why, retired=retired)

    def end_preview(self, plan: str, who: str, reason: str) -> None:
        """Let the readers of a plan's preview follow again."""

        def attempt() -> None:
            channels = self.now()
            for channel in channels.with_preview(plan):
                follows = replace(channels.pointer(channel), plan="")
                channels = self.move(channels, channel, follows, who=who, reason=reason)

        again_after(Conflict, _ATTEMPTS)(attempt)

    def _change(
        self, after: Channels, kind: str, who: str, reason: str, **changed: Any
    ) -> Channels:
        channels = replace(
            after,
            number=self.documents.next_number(after.number),
            at=datetime.now(UTC),
            who=who,
            reason=reason,
            kind=kind,
            newest=self.newest_release(),
            **changed,
        )
        contents = _CHANNELS.dump_json(channels).decode()
        if not self.documents.add(channels.number, contents):
            first = self.now()
            raise Conflict(
                f"What readers of the channels get was changed meanwhile by {first.who}:"
                f" {first.reason}.",
                unchanged="No pointer was moved, and no release was retired.",
                next_step="See `backfill releases`, then type the same again.",
            )
        return channels


def refuse_unknown_channel(channel: str) -> None:
    """Raise UsageError if the name is not a channel."""
    if channel not in (STABLE, CANDIDATE):
        raise UsageError(
            f"There is no channel {channel}.",
            unchanged="Nothing was read or changed.",
            next_step=f"The channels are {STABLE}, {CANDIDATE}.",
        )
