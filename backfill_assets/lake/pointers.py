"""What readers of a channel get: the newest release, a fixed one, or the preview of a plan.

A preview is a release combined with the days of a plan's shadow, as steps read it. It is one small
file in the folder of the shadow. So it ends with the shadow, and its readers follow again. Live has
no rows of the plan.
"""

from dataclasses import replace

from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.channels import STABLE, ChannelHistory, Pointer, refuse_unknown_channel
from backfill_assets.lake.releases import RELEASE, Release, Releases, no_release
from backfill_assets.lake.shadow import ledgers_of_shadows, shadow_root
from backfill_assets.lake.storage import Documents

_FILE = "preview.json"


def open_channel(root: str, channel: str = STABLE) -> Release:
    """The release, or the preview, that readers of a channel get now.

    Raises UsageError if there is no release yet, or no such channel.
    """
    refuse_unknown_channel(channel)
    channels = ChannelHistory(root).now()
    pointer = channels.pointer(channel)
    opened = read_preview(root, pointer.plan) if pointer.plan else None
    if opened is None:
        number = channels.pinned(channel)
        opened = Releases(root).get(number) if number else Releases(root).newest()
    if opened is None:
        raise no_release(root)
    return replace(opened, switches=channels.switches_of(channel))


def open_preview(root: str, plan: str) -> Release:
    """The preview of a plan. Raises UsageError if there is none."""
    ChannelHistory(root).documents.newest()  # refuses a newer lake
    if preview := read_preview(root, plan) if plan.isalnum() else None:
        return preview
    others = [preview.preview for preview in previews(root)]
    there_are = f"There are previews of {', '.join(others)}. " if others else ""
    raise UsageError(
        f"There is no preview of plan {plan}.",
        unchanged="Nothing was read.",
        next_step=f"{there_are}`backfill preview {plan}` makes one, if the plan is in its shadow.",
    )


def read_preview(root: str, plan: str) -> Release | None:
    """The preview of a plan; None if there is none, or if it has ended."""
    try:
        return RELEASE.validate_json(Documents(shadow_root(root, plan)).read(_FILE))
    except FileNotFoundError:
        return None
    except ValueError:
        raise TableUnreadable(
            f"{shadow_root(root, plan)}/{_FILE} cannot be read.",
            unchanged="Nothing was read.",
            next_step=f"Type `backfill preview {plan}`: it writes that file again.",
        ) from None


def write_preview(root: str, preview: Release) -> None:
    """Store a preview. Its readers get it at once."""
    Documents(shadow_root(root, preview.preview)).write(_FILE, RELEASE.dump_json(preview))


def previews(root: str) -> list[Release]:
    """All previews of the lake. Their releases are still needed."""
    found = [read_preview(root, plan) for plan in ledgers_of_shadows(root)]
    return [preview for preview in found if preview]


def pointer_lines(root: str) -> list[str]:
    """A sentence for each channel that does not follow, with the command to let it follow."""
    pointers = ChannelHistory(root).now().pointers.items()
    return [
        words for channel, pointer in pointers if (words := _pointer_words(root, channel, pointer))
    ]


def _pointer_words(root: str, channel: str, pointer: Pointer) -> str:
    to = "" if channel == STABLE else f" --channel {channel}"
    ends = f"`backfill release --follow{to}` lets it follow again."
    on = f" on {pointer.at:%Y-%m-%d %H:%M} UTC" if pointer.at else ""
    by = f"by {pointer.who}{on}{f': {pointer.reason}' if pointer.reason else ''}"
    if pointer.release:
        return f"{channel} is pinned to release {pointer.release} {by}. {ends}"
    try:
        preview = read_preview(root, pointer.plan) if pointer.plan else None
    except TableUnreadable as error:
        return f"{channel} gets the preview of plan {pointer.plan}. {error}"
    if preview is None:  # the channel follows; it may have switches
        return ""
    of_plan = f"the preview of plan {pointer.plan}, on release {preview.number}"
    return f"{channel} gets {of_plan}, {by}. {ends}"
