"""Which build wrote the rows that a partition holds: others may have found them as they were, or have put them back since."""

from collections.abc import Sequence

from backfill_assets.lake.record import Build


def writers(builds: Sequence[Build]) -> list[Build]:
    """Of each of a partition's builds that were accepted, oldest first, the one that wrote its rows.

    One that found rows unchanged has those of the build before it. One that put rows back has those of the last build with the
    same files or, where these have other names by now (compacted), or there are none (a day without rows), the same rows.
    """
    wrote: list[Build] = []
    for n, build in enumerate(builds):
        if build.outcome == "unchanged" and wrote:
            wrote.append(wrote[-1])
        elif build.outcome == "restored":
            wrote.append(next((wrote[earlier] for earlier in _with_rows_of(build, builds[:n])), build))
        else:
            wrote.append(build)
    return wrote


def _with_rows_of(restored: Build, builds: Sequence[Build]) -> list[int]:
    """The builds that have the rows of one that put rows back, the likeliest first."""
    latest_first = range(len(builds) - 1, -1, -1)
    same_files = [n for n in latest_first if builds[n].files_of == restored.files_of]
    return same_files + [n for n in latest_first if builds[n].fingerprint and builds[n].fingerprint == restored.fingerprint]
