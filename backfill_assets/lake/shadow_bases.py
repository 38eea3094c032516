"""The versions of live that open shadows read: `<lake>/_shadow/<plan>/base.json`, which has them by table.

No file of these versions may be removed while the shadow is there.
"""

import json
from collections.abc import Mapping

from pyarrow.fs import FileSelector, FileType

from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.paths import Paths, files_in


def shadow_versions(root: str) -> Mapping[str, set[int]]:
    """The versions of each table of live that shadows in the lake at `root` read; empty if there is no shadow.

    Raises TableUnreadable for a record that cannot be read: what its shadow needs is not known.
    """
    folder = Paths(root).table("_shadow")
    plans = files_in(root).get_file_info(FileSelector("_shadow", allow_not_found=True))
    versions: dict[str, set[int]] = {}
    for plan in plans:
        if plan.type == FileType.Directory:
            for table, version in _base(folder, plan.base_name).items():
                versions.setdefault(table, set()).add(version)
    return versions


def _base(folder: str, plan: str) -> dict[str, int]:
    """The versions of one shadow; none where the record is not written yet, or removed already."""
    path = f"{plan}/base.json"
    store = files_in(folder)
    if store.get_file_info(path).type == FileType.NotFound:
        return {}
    try:
        with store.open_input_stream(path) as file:
            tables = json.loads(file.read())["tables"]
        return {str(name): int(version) for name, version in tables.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TableUnreadable(
            f"{folder}/{path} cannot be read, so that what its shadow needs is not known: {str(error)[:200]}. Nothing was "
            f"removed. Restore the file, or discard the shadow by removing {folder}/{plan}."
        ) from None
