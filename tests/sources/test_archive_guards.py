"""Archives that can be read and may be incomplete, or others: refused with what was in intact,
until accepted by name.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from backfill_assets.sources.files.fields import field
from backfill_assets.sources.files.formats import JSON_LINES, AnyFormat, Csv
from backfill_assets.step.sources import load_sentence
from tests.worlds.archives import ARCHIVED_DAYS, PAST, ArchiveLake

FIELDS = [field("place STRING", "Place", "Town", required=True), field("sick BIGINT", "Sick")]
WAS = "at,Place,Sick\n2019-08-15,A,1\n2019-08-16,B,2\n"


@pytest.fixture
def archives(tmp_path: Path) -> ArchiveLake:
    return ArchiveLake(tmp_path, replace(PAST, format=Csv(), fields=FIELDS))


@pytest.mark.parametrize(
    ("content", "then"),
    [
        pytest.param("at,Place,Sick\n", [], id="a header alone"),
        pytest.param("", [], id="nothing"),
        pytest.param(
            "at,Place,Sick\n2019-08-15,A,1\n2019-08-16,B", ARCHIVED_DAYS[:2], id="cut within a line"
        ),
        pytest.param(
            'at,Sick,Place\n2019-08-15,1,A\n2019-08-16,2,"Ada, Ida',
            ARCHIVED_DAYS[:2],
            id="cut within quotes",
        ),
        pytest.param("at,Sick\n2019-08-15,1\n", ARCHIVED_DAYS[:1], id="another data set"),
    ],
)
def test_a_doubtful_archive_is_refused_until_accepted_by_name(archives, content, then, golden):
    archives.put("a.csv", WAS)
    archives.run()
    before = archives.held()
    files = archives.written()
    archives.put("a.csv", content)
    (refused,) = archives.run().values()
    assert (refused.acceptable, refused.record) == (True, None)
    golden(refused.problem)
    golden(load_sentence(refused), "sentence")
    assert (archives.held(), archives.written()) == (before, files)
    (accepted,) = archives.run(accept=["past/a.csv"], reason="nothing happened").values()
    assert accepted.record.accepted == "nothing happened"
    golden(load_sentence(accepted), "accepted")
    assert list(archives.held()) == list(then)
    assert archives.run() == {}, "what was accepted stays so"
    assert archives.run(full_refresh=True)["past/a.csv"].problem == "", "while it is the same"
    archives.put("a.csv", content.replace("2019-08-15", "2019-08-17"))
    if content.count("2019-08-15"):
        assert archives.run()["past/a.csv"].acceptable, "another content is another matter"


@pytest.mark.parametrize("form", [JSON_LINES, Csv()], ids=["JSON lines", "CSV"])
def test_a_required_column_may_come_late_and_by_another_name(archives, form: AnyFormat):
    archives.archive = replace(PAST, format=form, fields=FIELDS)
    if form == JSON_LINES:
        archives.put(
            "a.jsonl", '{"at": "2019-08-15"}\n' * 50 + '{"at": "2019-08-15", "Town": "A"}\n'
        )
    else:
        archives.put("a.csv", "Town,at\n" + ",2019-08-15\n" * 51)
    (taken,) = archives.run().values()
    assert (taken.problem, taken.rows) == ("", 51)


def test_json_lines_of_another_data_set_are_refused(archives, golden):
    archives.archive = replace(PAST, fields=FIELDS)
    archives.put("a.jsonl", '{"at": "2019-08-15", "name": "A"}\n' * 3)
    archives.put("b.jsonl", "".join(f'{{"at": "2019-08-15", "id{n}": 1}}\n' for n in range(1000)))
    taken = archives.run()
    golden(taken["past/a.jsonl"].problem)
    assert taken["past/b.jsonl"].rows == 1000
