"""What an edit changes in the declared tables, read from git, without a lake."""

import shutil
import tempfile
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from backfill_assets.errors import UsageError
from backfill_assets.impact.declared import read_edit
from backfill_assets.impact.impact import Impact
from backfill_assets.verbs.impact import ImpactReport, read_impact
from tests.worlds.command_line import Done, backfill_main
from tests.worlds.shop import CORRECTION, Shop, git

pytestmark = pytest.mark.servers
DAYS = [date(2024, 6, n) for n in range(1, 6)]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch) -> Shop:
    """The project without a lake. Temporary folders of this process are in `root`/temporary."""
    shop = Shop.at(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(shop.folder)
    return shop


def backfill(shop: Shop, *arguments: str, **settings: str) -> Done:
    shop.forget_modules()
    return backfill_main("impact", *arguments, home=shop.root / "home", **settings)


def impact(shop: Shop, base: str = "HEAD") -> Impact:
    return read_impact(shop.workspace(), base, shop.folder, 0).impact


@pytest.mark.scale
def test_without_a_lake_every_day_of_the_calendar_counts_and_minutes_are_unknown(shop, golden):
    shop.edit("prices.py", CORRECTION)
    shop.commit("round")
    commit = git(shop.repository, "rev-parse", "HEAD~1")[:12]
    shown = backfill(shop, "--base", "HEAD~1")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert not (shop.root / "home").exists()
    found = impact(shop, "HEAD~1")
    assert found.days == {"staging/sales": DAYS, "features/two_days": DAYS}
    assert found.expected is None
    golden(shown.stdout, "shown", COMMIT=commit)
    golden(backfill(shop, "--base", "HEAD~1", "--markdown").stdout, "markdown", COMMIT=commit)


def test_exit_codes_are_those_of_terraform_where_they_are_asked_for(shop):
    same = backfill(shop, "--base", "HEAD", "--detailed-exitcode")
    wrong = backfill(shop, "--base", "HEAD", "--detailed-exitcode", "--canary", "many")
    gone = backfill(shop, "--base", "gone", "--detailed-exitcode")
    shop.edit("prices.py", CORRECTION)
    edited = backfill(shop, "--base", "HEAD", "--detailed-exitcode", "--json")
    codes = [done.returncode for done in (same, wrong, gone, edited)]
    assert codes == [0, 1, 1, 2]
    assert '"is_dirty": true' in edited.stdout


def test_each_changed_fact_is_named(shop):
    shop.edit(
        "tables.py",
        (
            'day DATE, number BIGINT", version="1",\n    reads={"lines": same_day(lines)},',
            'day DATE, number INT, name STRING", version="2", key=["day"],\n'
            '    reads={"lines": window(lines, first=-1, last=0)},',
        ),
    )
    assert impact(shop).changes["features/lines"] == {
        "columns": "-number BIGINT, +number INT, +name STRING",
        "key": "+day",
        "inputs": "-raw/sales S+0..S+0, +raw/sales S-1..S+0",
        "version": "-1, +2",
    }


@pytest.mark.scale
def test_code_of_a_version_by_hand_makes_nothing_outdated_and_is_told(shop):
    shop.edit("tables.py", ('F.count("line")', 'F.sum("line")'))
    found = impact(shop)
    assert found.changes == {
        "features/lines": {"code": "tables:numbers", "same version": "1, given by hand"}
    }
    assert found.days == {}


@pytest.mark.scale
def test_new_and_removed_tables_and_rules_are_told(shop):
    shop.edit(
        "tables.py",
        ("tables=[lines, sales, two_days, numbers]", "tables=[lines, sales, two_days]"),
        ("from backfill_assets import", "from backfill_assets import rules,"),
        (
            'key=["day", "shop"], reads={"lines"',
            'key=["day", "shop"], rules=[rules.has_rows()], reads={"lines"',
        ),
    )
    after = impact(shop)
    assert after.changes.keys() == {"features/lines", "staging/sales"}
    assert after.changes["features/lines"] == {"table": "removed"}
    assert after.changes["staging/sales"].keys() == {"rules"}
    assert after.days == {}


def test_a_commit_that_does_not_load_is_an_error_in_one_sentence(shop, golden):
    shop.edit("prices.py", ("def as_cents", "1 / 0\n\ndef as_cents"))
    broken = shop.commit("broken")
    shop.edit("prices.py", ("1 / 0\n\n", ""))
    with pytest.raises(UsageError) as raised:
        impact(shop)
    assert list((shop.root / "temporary").iterdir()) == []
    golden(_without_temporary(str(raised.value)))
    assert impact(shop, f"{broken}~1").changes == {}


@pytest.mark.scale
def test_a_commit_without_the_project_is_an_error_in_one_sentence(shop, golden):
    folder = git(shop.repository, "rev-parse", "HEAD:shop")
    commit = git(shop.repository, "commit-tree", folder, "-m", "as files at the top")
    with pytest.raises(UsageError) as raised:
        impact(shop, commit)
    golden(str(raised.value), COMMIT=commit)


def _without_temporary(text: str) -> str:
    return " ".join(
        f"TREE/{word.rpartition('/')[2]}" if "backfill-base-" in word else word
        for word in text.split(" ")
    )


@pytest.mark.scale
def test_the_repository_is_left_as_it_is(shop):
    shop.edit("prices.py", CORRECTION)
    (shop.repository / ".git" / "hooks" / "post-checkout").write_text(
        "#!/bin/sh\ntouch ../hooked\n"
    )
    (shop.repository / ".git" / "hooks" / "post-checkout").chmod(0o755)
    before = {
        path: path.read_bytes() for path in (shop.repository / ".git").rglob("*") if path.is_file()
    }
    assert impact(shop).days
    after = {
        path: path.read_bytes() for path in (shop.repository / ".git").rglob("*") if path.is_file()
    }
    assert {path.name for path in before if after.get(path) != before[path]} <= {"index"}
    assert before.keys() == after.keys()
    assert list((shop.root / "temporary").iterdir()) == []


@pytest.mark.scale
def test_files_that_an_archive_leaves_out_or_changes_are_checked_out_as_they_are(shop):
    shop.edit("prices.py", ("def as_cents", "COMMIT = '$Format:%H$'\n\ndef as_cents"))
    (shop.repository / ".gitattributes").write_text("*.py export-subst\ntables.py export-ignore\n")
    shop.commit("attributes")
    assert impact(shop).changes == {}


@pytest.mark.scale
def test_variables_that_git_sets_for_its_hooks_do_not_count(shop, monkeypatch):
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(shop.root))
    assert impact(shop).changes == {}


@pytest.mark.scale
def test_what_a_project_prints_is_not_taken_for_its_tables(shop):
    noise = "import atexit, os\n\natexit.register(print, 'bye')\nos.write(1, b'hello')\n"
    shop.edit("prices.py", ("def as_cents", f"{noise}\ndef as_cents"))
    shop.commit("noise")
    assert impact(shop).changes == {}


def test_a_folder_outside_of_git_is_refused(shop, golden):
    shutil.rmtree(shop.repository / ".git")
    done = backfill(shop, "--base", "HEAD")
    assert done.returncode == 2
    golden(done.stderr, FOLDER=shop.folder)


def test_without_git_the_command_says_so(shop, monkeypatch):
    monkeypatch.setenv("PATH", str(shop.root))
    with pytest.raises(UsageError) as raised:
        read_edit("HEAD", "tables", shop.folder)
    assert "git is not installed" in raised.value.what


@pytest.mark.parametrize("base", ["gone", "-q", "HEAD:shop/tables.py", "--output=x"])
def test_a_commit_that_does_not_exist_is_refused(shop, base, golden):
    with pytest.raises(UsageError) as raised:
        impact(shop, base)
    golden(str(raised.value), REPOSITORY=shop.repository)


def test_the_bundled_project_is_refused(shop, golden):
    done = backfill(
        shop, "--base", "HEAD", BACKFILL_PROJECT="backfill_assets.datasets.outages.project"
    )
    assert done.returncode == 2
    golden(done.stderr)


@pytest.mark.scale
def test_a_project_that_is_installed_elsewhere_is_refused(shop):
    module = "backfill_assets.datasets.case_reports.project"
    with pytest.raises(UsageError) as raised:
        read_edit("HEAD", module, shop.folder)
    assert "case_reports/project.py" in raised.value.what


@pytest.mark.scale
def test_a_canary_on_executors_elsewhere_is_refused(shop, golden):
    workspace = shop.workspace(spark_remote="sc://spark.example.com:15002", shared_disk="1")
    with pytest.raises(UsageError) as raised:
        read_impact(workspace, "HEAD", shop.folder, 1)
    golden(str(raised.value))


EVIL = "a|b `c` <img src=x> </details> @ada **d** [e](http://f) &lt; _g_ #1 ~~h~~\n\n# i"


def test_names_and_messages_do_not_break_the_markdown():
    report = ImpactReport(
        "shop",
        EVIL,
        "0" * 40,
        False,
        Impact({EVIL: {"code": EVIL, "columns": EVIL}}, {EVIL: [DAYS[0]]}, 0, None),
        [(EVIL,) * 8],
        [(EVIL, EVIL, EVIL)],
    )
    plain = " ".join(EVIL.replace("@", "@\u200b").split())
    page = MarkdownIt("commonmark").enable("table").parse(report.markdown())
    assert {token.type for token in page if token.type.endswith("_open")} == {
        "heading_open",
        "paragraph_open",
        "table_open",
        "thead_open",
        "tbody_open",
        "tr_open",
        "th_open",
        "td_open",
    }
    kinds = {child.type for token in page for child in token.children or ()}
    assert kinds <= {"text", "text_special", "softbreak"}
    cells = [
        "".join(child.content for child in inline.children or ())
        for opened, inline in pairwise(page)
        if opened.type == "td_open"
    ]
    assert cells.count(plain) == 1 + 8 + 3
    assert f"code {plain}; columns {plain}" in cells
    assert sum("<summary>" in token.content for token in page if token.type == "html_block") == 3
