"""Archives that several tables read: each is loaded once, and a bad one stops no other."""

from dataclasses import replace

import pytest

from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.archives.two_flows import TwoFlows
from backfill_assets.sources.files.fields import Field, field
from backfill_assets.sources.files.landing import Landing
from backfill_assets.step.sources import archives_of, load_named_archives
from backfill_assets.tables.declaration import Table, table
from tests.worlds.archives import DAYS, PAST, History
from tests.worlds.outages import no_spark


def reading(name: str, archive: Archive, *fields: Field) -> Table:
    source = TwoFlows(Landing(name, fields=fields), archive)
    return table(
        f"raw/{name}",
        partition_by="day",
        columns="day DATE, malformed STRING",
        reads={"rows": source},
        version="1",
    )(lambda rows: rows)


@pytest.fixture
def history(tmp_path) -> History:
    history = History(tmp_path, no_spark)
    history.file_away("2019.jsonl", {DAYS[0]: (1, 2)})
    return history


def test_a_folder_of_archives_that_cannot_be_listed_holds_up_no_other(history, golden):
    root = history.workspace.area.root
    (root / "loop").symlink_to(root / "loop")
    workspace = replace(
        history.workspace,
        tables=(reading("other", Archive("loop", day="at")), *history.workspace.tables),
    )
    results = list(load_named_archives(workspace))
    assert [(name, result.rows, bool(result.problem)) for name, result in results] == [
        ("loop", 0, True),
        ("past", 2, False),
    ]
    golden(results[0][1].problem)


def test_an_archive_that_two_tables_read_has_the_columns_that_either_requires(history, golden):
    either = [
        reading(name, PAST, field(f"{name} STRING", required=True)) for name in ("number", "cents")
    ]
    assert [each.name for each in archives_of(either)["past"].fields] == ["number", "cents"]
    ((_, result),) = load_named_archives(replace(history.workspace, tables=tuple(either)))
    golden(result.problem)
