"""The wheel, installed into an environment of its own: from an empty folder to built days."""

import re
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable, write_deltalake

import backfill_assets
from tests.worlds.servers import PROJECT, Up, environment_alone

PACKAGE = Path(backfill_assets.__file__).parent
COUNTED = """
    SELECT day, count(*) AS row_count, sum(count(*)) OVER (
        ORDER BY day RANGE BETWEEN INTERVAL 6 DAY PRECEDING AND CURRENT ROW
    )::BIGINT AS row_count_7d
    FROM (SELECT {}::DATE AS day FROM {}) GROUP BY day ORDER BY day
"""


def run(*command: object, folder: Path, code: int = 0) -> str:
    """What a command prints. Nothing of this tree is on the path of its Python."""
    env = {name: value for name, value in environment_alone().items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    if "evaluate" in command:
        # What functions say is shown, and nothing of what Spark says at its start.
        assert not re.search("log level|NativeCodeLoader|(?i:ivy)|incubator", done.stderr)
    return done.stdout


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and the dependencies of the tests."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def backfill(self) -> Path:
        return self.folder / "bin" / "backfill"

    @property
    def package(self) -> Path:
        place = run(
            self.python, "-c", "import backfill_assets as b; print(b.__file__)", folder=self.folder
        )
        return Path(place.strip()).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    root = tmp_path_factory.mktemp("wheel")
    source = root / "source"
    listed = run(
        "git", "ls-files", "backfill_assets", "pyproject.toml", "README.md", folder=PROJECT
    )
    for name in listed.splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((PROJECT / name).read_bytes())
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    made = ("wheel", "--no-deps", "--wheel-dir", root)
    run(*pip, *made, source, folder=root)
    (wheel,) = root.glob("*.whl")
    environment = root / "env"
    venv.create(environment, symlinks=True)
    target = ("--python", environment / "bin" / "python")
    run(*pip, *target, "install", "--no-deps", "--no-index", wheel, folder=root)
    # Afterwards, so that pip does not look at the package of this tree.
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "of_the_tests.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return Installed(environment)


@pytest.mark.scale
def test_the_wheel_has_every_file_of_the_package(installed):
    assert installed.package.is_relative_to(installed.folder)
    listed = run("git", "ls-files", "backfill_assets", folder=PROJECT).splitlines()
    missing = [name for name in listed if not (installed.package.parent / name).is_file()]
    assert missing == []


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV file in another dialect."""
    file = tmp_path_factory.mktemp("sales") / "Sales 2024.csv"
    lines = [
        f"{number};Zürich;{number % 7},50;{1 + number % 9:02}.06.2024 {number % 24:02}:15\n"
        for number in range(1, 60)
    ]
    file.write_text("Number;Store;Price;Sold at\n" + "".join(lines), encoding="cp1252")
    return file


# Guesses from data are judged in `tests/cli/test_init.py` too.
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("its own rows", marks=pytest.mark.scale),
        pytest.param("a CSV file", marks=pytest.mark.nightly),
        pytest.param("a Delta table", marks=pytest.mark.nightly),
    ],
)
def test_a_project_from_nothing_is_built_and_passes_its_test(
    installed, sales, tmp_path, spark, kind
):
    text = "strptime(\"Sold at\", '%d.%m.%Y %H:%M')"
    utf_8 = tmp_path / "sales.csv"
    utf_8.write_text(sales.read_text("cp1252"))
    csv = f"read_csv('{utf_8}', delim=';', all_varchar=true)"
    typed = {"a CSV file": ("--from-csv", sales), "a Delta table": ("--from-delta", tmp_path / "t")}
    if kind == "a Delta table":
        query = f'SELECT "Number"::INT AS no, {text}::DATE AS sold_on FROM {csv}'
        rows = duckdb.sql(query)
        assert rows
        write_deltalake(str(tmp_path / "t"), rows.to_arrow_table(), partition_by=["sold_on"])
    said = run(installed.backfill, "init", "company", *typed.get(kind, ()), folder=tmp_path)
    project = tmp_path / "company"
    commands = re.findall(r"^  (backfill run .*)$", said, re.MULTILINE)
    env = {name: value for name, value in environment_alone().items() if name != "PYTHONPATH"}
    up = Up(project / ".backfill", project, env, program=[str(installed.backfill)])
    up.home.mkdir()
    try:
        up.start()
        (typed_run,) = [command.split()[1:] for command in commands]
        run(installed.backfill, *typed_run, folder=project)
        status = run(installed.backfill, "status", "--check", folder=project)
        up.end()
    finally:
        if up.process and up.process.poll() is None:
            up.process.terminate()
            up.process.wait(timeout=90)
    (feature,) = re.findall(r"^(features/\w+) ", status, re.MULTILINE)
    built = DeltaTable(str(project / ".backfill" / "lake" / feature)).to_pyarrow_table()
    own = f"read_csv('{project}/deliveries/*/*.csv')"
    counted = COUNTED.format(*{"its own rows": ("ordered_at", own)}.get(kind, (text, csv)))
    assert (
        sorted(tuple(row.values()) for row in built.to_pylist())
        == duckdb.execute(counted).fetchall()
    )
    evaluated = run(installed.backfill, "evaluate", feature, "2024-06-08", "--json", folder=project)
    assert '"differs": false' in evaluated or '"why": ""' in evaluated
    dg = ("-c", "from dagster_dg_cli.cli import main; main()")
    assert feature in run(installed.python, *dg, "list", "defs", "--json", folder=project)
    run(installed.python, *dg, "check", "defs", folder=project)
    run(installed.python, "-m", "ruff", "check", "--no-cache", ".", folder=project)
    run(installed.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=project)
