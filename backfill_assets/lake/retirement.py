"""Which releases readers may still ask for, and which are retired: their files may then be removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt

from backfill_assets.errors import Conflict
from backfill_assets.lake.release import Release
from backfill_assets.lake.releases import Releases

# So many of the last releases of tables stay, however old they are: where little is released, somebody still goes back to one.
ALWAYS_KEPT = 5
ATTEMPTS = 20


@dataclass(frozen=True)
class Kept:
    """The releases that are not retired: those `to_retire`, and those that stay, `kept`. `newest`: the last of all."""

    newest: Release | None
    kept: Sequence[Release]
    to_retire: Sequence[Release]


def kept_releases(releases: Sequence[Release], since: datetime) -> Kept:
    """Which of all the releases of a lake stay, given that readers may go back to what they had at any time from `since` on.

    Those that a channel has now, those that were the newest or a channel's at any time since, and the last ALWAYS_KEPT.
    """
    if not releases:
        return Kept(None, (), ())
    newest, of_tables = releases[-1], [release for release in releases if release.has_own_tables]
    wanted = {release.number for release in of_tables[-ALWAYS_KEPT:]}
    for number, release in enumerate(releases):
        until = releases[number + 1].at if number + 1 < len(releases) else None
        if until is None or until >= since:
            wanted |= {release.number, *release.channels.values()}
    there = [release for release in releases if release.number not in newest.retired]
    kept = [release for release in there if release.number in wanted]
    return Kept(newest, kept, [release for release in there if release.number not in wanted])


def retire(root: str, since: datetime, now: datetime, who: str) -> tuple[list[Release], Kept]:
    """Retire what is to be; the releases that were, and what is kept. Conflict if others released all the time."""
    attempts = Retrying(retry=retry_if_exception_type(Conflict), stop=stop_after_attempt(ATTEMPTS))
    try:
        return attempts(_retire, Releases(root), since, now, who)
    except RetryError as error:
        raise Conflict(f"Releases were added {ATTEMPTS} times meanwhile. Nothing was retired or removed. Run again.") from error


def _retire(releases: Releases, since: datetime, now: datetime, who: str) -> tuple[list[Release], Kept]:
    state = kept_releases(releases.all(), since)
    if not state.newest or not state.to_retire:
        return [], state
    numbers = [release.number for release in state.to_retire]
    reason = f"{len(numbers)} release(s) that nobody could go back to since {since:%Y-%m-%d}"
    releases.retire(state.newest, numbers, now.date(), who=who, reason=reason)
    return list(state.to_retire), kept_releases(releases.all(), since)
