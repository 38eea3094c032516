"""What a publication has done."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from backfill_assets.lake.record import SCHEMA, Build
from backfill_assets.lake.release import Release
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.channels import following
from backfill_assets.workspace import Workspace

PUBLISH, ROLLBACK = "publish", "rollback"


def name_of_act(act: str, plan: Plan) -> str:
    """A name of its own for one publication or rollback of a plan: the run in what it records."""
    return f"{act}-{plan.id}-{secrets.token_hex(4)}"


def recorded_by(act: str, plan: Plan, workspace: Workspace) -> list[Build]:
    """The builds of live that publications, or rollbacks, of a plan have recorded last; those that were killed, too."""
    latest = workspace.lake.latest({name: plan.days_of(name) for name in plan.reasons}, SCHEMA.names).accepted
    return [build for build in latest.values() if build.run.startswith(f"{act}-{plan.id}-")]


@dataclass(frozen=True)
class Published:
    """What was recorded in live (`accepted`: with new rows; `unchanged`: live had them), and the release that readers get.

    Readers of the channels in `staying` get other tables than those of the release.
    """

    builds: tuple[Build, ...]
    release: Release
    staying: tuple[str, ...]

    @classmethod
    def of(cls, builds: Iterable[Build], release: Release, workspace: Workspace) -> Self:
        releases = Releases(workspace.lake.root)
        moved = following(workspace.lake.root, releases.newest())
        return cls(tuple(builds), release, tuple(name for name in release.channels if name not in moved))

    def count(self, outcome: str) -> int:
        return sum(build.outcome == outcome for build in self.builds)
