"""Releases as Dagster shows them: a materialization of the asset `releases` each, and evaluations of its check."""

from collections.abc import Iterable
from typing import Any

from dagster import AssetCheckEvaluation, AssetKey, AssetMaterialization, MetadataValue

from backfill_assets.lake.release import Release
from backfill_assets.publish.reasons import FAILURES, Reason

RELEASES, CHECK = AssetKey("releases"), "live_is_released"


def materialization(release: Release, before: Release | None) -> AssetMaterialization:
    """A release as Dagster shows it."""
    metadata: dict[str, Any] = {
        "release": release.number,
        "kind": release.kind,
        "who": release.who,
        "reason": release.reason,
        "changed tables": MetadataValue.json(release.changed(before)),
        "tables": MetadataValue.json({name: version.version for name, version in release.tables.items()}),
        "switches": MetadataValue.json(dict(release.switches)),
        "channels": MetadataValue.json(dict(release.channels)),
        "released at": MetadataValue.timestamp(release.at),
    }
    return AssetMaterialization(RELEASES, description=release.reason, metadata=metadata)


def evaluation(failures: list[str], staying: list[str], reasons: Iterable[Reason]) -> AssetCheckEvaluation:
    """The check: it fails if there are `failures`, in words; `reasons` have their days. `staying`: channels that are behind."""
    return AssetCheckEvaluation(
        asset_key=RELEASES,
        check_name=CHECK,
        passed=not failures,
        description=described(failures, staying),
        metadata=days_of(reasons),
    )


def described(failures: list[str], staying: list[str]) -> str:
    """What the check says."""
    if not failures:
        return " ".join(["No failed day keeps live from being released.", *(f"The channel {each}." for each in staying)])
    return (
        f"Live is not released, and readers get the release before it. {'; '.join(failures)}. Build these days, or release "
        "live in spite of them: `backfill release --reason ...`."
    )


def days_of(reasons: Iterable[Reason]) -> dict[str, Any]:
    """The days of failures by table, as metadata."""
    days = {reason.table: [str(day) for day in reason.days] for reason in reasons if reason.cause in FAILURES and reason.table}
    return {"days": MetadataValue.json(days)} if days else {}
