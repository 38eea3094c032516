"""Make the golden lake of the present form: `python -m tests.lake.make_golden_lake`.

It is made once, when a form is new, and never again: it stands for the lakes that people have. The
archive has the lake and `oracle.json`, which says what must come out. The values there are written
by this script, which chose them, and not read from the lake.
"""

import json
import sys
import tarfile
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from backfill_assets.lake.channels import ChannelHistory
from backfill_assets.lake.storage import FORM
from backfill_assets.lake.table_facts import keep_facts
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.sources.archives.loading import load_archives
from backfill_assets.sources.http.source import AnswerStore
from backfill_assets.sources.protocol import require_usable
from tests.worlds.deliveries import put
from tests.worlds.golden_lakes import GOLDEN_LAKES, PAST, QUERY, SALES, WEATHER, area_of
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    killed_when,
    preview,
    publish,
    rebuilt_in_shadow,
    release_live_now,
    released_lake,
    verdict_of,
)

FIRST, SECOND, THIRD, LAST = DAYS
ROLLED_BACK = {FIRST: 9}
OF_A_NIGHT = {LAST: 5}
OPEN = {SECOND: 20}
PREVIEWED = {THIRD: 30}
HALF_PUBLISHED = {FIRST: 40}


def open_plan(lake: SmallLake) -> Plan:
    """A plan that was started and has not ended. Its shadow has A, and not B."""
    days = {table: list(OPEN) for table in (A.name, B.name)}
    reasons = {
        table: {at: Reason(ReasonKind.CODE_CHANGED) for at in of} for table, of in days.items()
    }
    options = PlanOptions(reason="a better rule", into="shadow", force=True)
    plan = Plan(dict.fromkeys(days, "1"), reasons, [Chunk(0, days)], options)
    lake.plans.keep(plan)
    lake.plans.note(plan.id, "started", NOW, who="ada")
    open_shadow(plan, lake.workspace, "ada")
    lake.plans.note(plan.id, "requested", NOW, chunk=0)
    lake.write(OPEN, into=plan)
    return plan


def write_lake(folder: Path) -> dict[str, object]:
    """Write the lake into `<folder>/lake`, and return what must come out of it."""
    lake = released_lake(folder)
    rolled_back = rebuilt_in_shadow(lake, ROLLED_BACK)
    publish(lake, rolled_back)
    lake.roll_back(rolled_back)
    for table in (A.name, B.name):
        lake.write(OF_A_NIGHT, table=table)
    lake.fail(LAST)
    release_live_now(lake)
    channels = ChannelHistory(str(lake.root))
    channels.retire(channels.now(), [1], NOW.date(), who="ada", why="a test")
    opened = open_plan(lake)
    previewed = rebuilt_in_shadow(lake, PREVIEWED)
    preview(lake, previewed)
    half = rebuilt_in_shadow(lake, HALF_PUBLISHED)
    verdict_of(half, lake.workspace)
    keep_facts([f"{lake.root}/{A.name}"], at_least=0)
    files = deliver(folder)
    before = RELEASED | OF_A_NIGHT
    with killed_when(lambda: lake.values() != before) as killed:
        publish(lake, half)
    assert killed, "the act was not killed between its two commits"
    finished = before | HALF_PUBLISHED
    return {
        "tables": [A.name, B.name],
        "releases": {2: values(RELEASED | ROLLED_BACK), 3: values(RELEASED), 4: values(before)},
        "retired": [1],
        "candidate": values(before | PREVIEWED),
        "plans": {
            "open": opened.id,
            "previewed": previewed.id,
            "half published": half.id,
            "rolled back": rolled_back.id,
        },
        "remaining": {B.name: [str(at) for at in OPEN]},
        "values of the open plan": values(OPEN),
        "finished": values(finished),
        "resumed": values(finished | OPEN),
        "rolled back": values(before),
        "all published": values(finished | PREVIEWED),
        **files,
    }


def deliver(folder: Path) -> dict[str, object]:
    """Let sources write what they keep in a lake, and return what must come out of it."""
    area = area_of(folder)
    put(area.root, "sales/two_days.csv", f"n,at\n1,{FIRST}\n2,{SECOND}\n3,{SECOND}\n")
    put(area.root, "past/all.jsonl", f'{{"n": 1, "at": "{FIRST}"}}\n{{"n": 2, "at": "{LAST}"}}\n')
    require_usable(SALES.delivered(area, [FIRST, SECOND]))
    for loaded in load_archives(PAST, area):
        assert not loaded.problem, loaded.problem
    AnswerStore(area, WEATHER).write(QUERY, FIRST, [["Turin", 21.5], ["Turin", None]])
    return {
        "sales": {str(FIRST): 1, str(SECOND): 2},
        "past": {str(FIRST): 1, str(LAST): 1},
        "weather": {str(FIRST): [["Turin", 21.5], ["Turin", None]]},
    }


def values(by_day: dict[date, int]) -> dict[str, int]:
    """The value of each day, in both tables: the number of its rows, and the number in each."""
    return {str(at): value for at, value in by_day.items()}


def without_locks(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """The entry without the user of this machine. None for the locks of its processes."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if "_locks" in Path(entry.name).parts else entry


def main() -> None:
    target = GOLDEN_LAKES / f"form-{FORM}.tar.xz"
    if target.exists():
        sys.exit(f"{target.name} exists. It was left as it is: a golden lake is made once.")
    with TemporaryDirectory() as made:
        oracle = write_lake(Path(made))
        Path(made, "oracle.json").write_text(json.dumps(oracle, indent=1))
        with tarfile.open(target, "w:xz") as archive:
            for name in ("lake", "landing", "oracle.json"):
                archive.add(Path(made, name), name, filter=without_locks)
    print(f"{target.name}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
