"""`backfill backup` and `backfill restore`: what they print, and what the doctor says then."""

import re

from backfill_assets.cli import doctor, exit_codes
from backfill_assets.settings import read_settings
from tests.worlds.command_line import backfill, values_of
from tests.worlds.small_lake import RELEASED, SmallLake, copy_of, gets, released_lake

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?")


def test_a_lake_is_backed_up_and_restored_by_commands(tmp_path, golden):
    lake = copy_of(released_lake, tmp_path)
    settings = read_settings(lake=str(lake.root))
    golden(doctor.backup(settings).message, "before", command="backup")
    made = backfill("backup", str(tmp_path / "copies"), home=tmp_path)
    assert made.exit_code == exit_codes.DONE
    golden(TIME.sub("<time>", made.stdout), "made", command="backup")
    said = TIME.sub("<time>", doctor.backup(settings).message)
    golden(said, "doctor", command="backup")
    assert values_of("backup", str(tmp_path / "copies"), home=tmp_path)["number"] == 2
    refused = backfill("restore", str(tmp_path / "copies"), home=tmp_path)
    assert refused.exit_code != exit_codes.DONE
    lake.root.rename(tmp_path / "lost")
    restored = backfill("restore", str(tmp_path / "copies"), "--backup", "1", home=tmp_path)
    assert restored.exit_code == exit_codes.DONE
    golden(TIME.sub("<time>", restored.stdout), "restored", command="backup")
    assert gets(SmallLake(tmp_path / "lake")) == RELEASED
