"""What a publication has done."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from backfill_assets.lake.record import Build
from backfill_assets.lake.release import Release
from backfill_assets.lake.releases import Releases
from backfill_assets.publish.channels import following
from backfill_assets.workspace import Workspace


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
