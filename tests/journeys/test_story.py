"""`backfill demo --story publish`, as a new user gives it: every step ends as the story says, and
the lake is as it tells.
"""

import re
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from backfill_assets.calendar import between
from backfill_assets.cli.story import Edit, read_story
from backfill_assets.errors import UsageError
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.servers.home import servers_record
from backfill_assets.verify.checklist import CheckOutcome
from backfill_assets.verify.verify import Verdicts
from tests.worlds.outages import DAILY, DAILY_V2, HISTORY, OUTAGES, differing_days
from tests.worlds.servers import Played, commands, play
from tests.worlds.station import FIRST

pytestmark = pytest.mark.nightly

PUBLISH = read_story("publish")
LAST = date(2019, 8, 21)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Played:
    return play(PUBLISH, tmp_path_factory.mktemp("story"))


def released(story: Played, number: int) -> pa.Table:
    root = str(story.folder / ".backfill" / "lake")
    return (
        ReleasedTable(root, Releases(root).get(number), OUTAGES)
        .dataset(list(between(FIRST, LAST)))
        .to_table()
    )


def test_every_step_is_played_and_ends_as_the_story_says(story):
    assert story.code == 0, story.printed
    expected = commands(PUBLISH)
    typed = story.typed()
    assert len(typed) == len(expected)
    assert [
        line[: len(beginning)] for line, beginning in zip(typed, expected, strict=True)
    ] == expected
    assert servers_record(story.folder / ".backfill") is None


def test_the_wrong_rule_is_named_by_verify_and_by_the_refusal_to_publish(story):
    assert f"Failed: drift {OUTAGES}.customers: " in story.printed
    assert re.search(rf"Plan \w+ failed its checks: drift {OUTAGES}.customers", story.printed)


def test_the_wrong_rule_fails_that_line_alone_and_is_neither_accepted_nor_in_live(story):
    root = str(story.folder / ".backfill" / "lake")
    (wrong,) = set(re.findall(r"Plan (\w+) failed its checks", story.printed))
    verdict = Verdicts(root).newest(wrong)
    assert verdict
    failed = [line.name for line in verdict.lines if line.outcome == CheckOutcome.FAILED]
    assert failed == [f"drift {OUTAGES}.customers"]
    with pytest.raises(UsageError, match="Nothing was changed"):
        Verdicts(root).accept(
            wrong, failed, who="ann", reason="it looks right", at=datetime.now(UTC)
        )
    before, published = (Releases(root).get(number).tables for number in (1, 2))
    # What was published in the end is the only commit that the tables had.
    commits = {
        name: published[name].version - before[name].version
        for name in (OUTAGES, DAILY, DAILY_V2, HISTORY)
    }
    assert (commits[OUTAGES], max(commits.values())) == (1, 1)


def test_readers_got_the_seven_days_then_the_mended_rule_and_then_what_was_before(story):
    before, published, after = (released(story, number) for number in (1, 2, 3))
    assert differing_days(before, published, "outage_day") == set(between(FIRST, LAST))
    assert published["customers"] == published["peak_customers"]
    assert differing_days(before, after, "outage_day") == set()


def test_the_mended_rule_stays_in_the_folder_to_be_looked_at(story):
    last_edit = [step for step in PUBLISH.steps if isinstance(step, Edit)][-1]
    assert last_edit.after in (story.folder / "outages" / "staging.py").read_text()
