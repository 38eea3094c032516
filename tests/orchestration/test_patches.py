"""Patches of Dagster and uses of its private names, for the version of Dagster they are made for.

A new minor version of Dagster fails these tests. Read the changes of each name, run the tests of
its module, then enter the new version here.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import backfill_assets
from tests.worlds.code import nodes_of

# Only a file with such a line is parsed.
IMPORT = re.compile(r"^\s*(?:from|import) dagster", re.MULTILINE)
PACKAGE = Path(backfill_assets.__file__).parent
LOCAL = PACKAGE / "orchestration" / "local"

# The module that patches or overrides, the name in Dagster, and the version it was written for.
PATCHES = [
    ("daemon", "dagster._daemon.controller:DEFAULT_DAEMON_INTERVAL_SECONDS", "1.13"),
    ("daemon", "dagster._daemon.monitoring.run_monitoring:monitor_starting_run", "1.13"),
    ("daemon", "dagster._daemon.monitoring.run_monitoring:monitor_canceling_run", "1.13"),
    ("event_log", "dagster._core.storage.event_log:SqliteEventLogStorage._connect", "1.13"),
    ("event_log", "dagster._core.storage.event_log:SqliteEventLogStorage.has_table", "1.13"),
    (
        "event_log",
        "dagster._core.storage.event_log:SqliteEventLogStorage.store_event_batch",
        "1.13",
    ),
    ("event_log", "dagster._core.storage.sqlite_storage:DagsterSqliteStorage.from_local", "1.13"),
    ("event_log", "dagster._core.instance:InstanceRef.config_defaults", "1.13"),
    ("event_log", "dagster:DagsterInstance.run_domain", "1.13"),
    (
        "exact_runs",
        "dagster._core.instance.runs.run_domain:RunDomain._log_asset_planned_events",
        "1.13",
    ),
    ("exact_runs", "dagster._core.instance.runs.run_domain:RunDomain._get_partitions_def", "1.13"),
    (
        "implicit_job",
        "dagster._core.definitions.repository_definition.repository_data_builder"
        ":get_base_asset_job_lambda",
        "1.13",
    ),
    ("postgres", "dagster_postgres.event_log:PostgresEventLogStorage._connect", "1.13"),
    ("postgres", "dagster_postgres.event_log:PostgresEventLogStorage.store_event_batch", "1.13"),
    ("postgres", "dagster_postgres.storage:DagsterPostgresStorage.from_config_value", "1.13"),
    ("run_launcher", "dagster:DefaultRunLauncher.launch_run", "1.13"),
    ("run_launcher", "dagster:DefaultRunLauncher.terminate", "1.13"),
    ("run_launcher", "dagster:DefaultRunLauncher.check_run_worker_health", "1.13"),
    ("run_starter", "dagster._utils:get_run_crash_explanation", "1.13"),
    (
        "recorded",
        "dagster._core.storage.event_log:SqliteEventLogStorage.get_asset_check_partition_info",
        "1.13",
    ),
    (
        "recorded",
        "dagster._core.storage.event_log:SqliteEventLogStorage.get_latest_tags_by_partition",
        "1.13",
    ),
    ("step_events", "dagster._core.events:DagsterEvent.step_output_event", "1.13"),
    ("unfinished", "dagster._core.execution.backfill:BulkActionsFilter", "1.13"),
    (
        "webserver",
        "dagster:TimeWindowPartitionsDefinition.get_paginated_partition_keys",
        "1.13",
    ),
    ("webserver", "dagster_webserver.app:DagsterWebserver", "1.13"),
    ("webserver", "dagster_webserver.webserver:DagsterWebserver.build_middleware", "1.13"),
    ("webserver", "dagster_webserver.webserver:DagsterWebserver.make_security_headers", "1.13"),
]


@pytest.mark.parametrize(
    ("module", "name", "written_for"), PATCHES, ids=[f"{m}-{name}" for m, name, _ in PATCHES]
)
def test_a_patch_is_made_for_the_installed_dagster(module, name, written_for):
    installed = ".".join(version("dagster").split(".")[:2])
    assert installed == written_for
    assert (LOCAL / f"{module}.py").is_file()
    assert found(name) is not None


def test_private_names_are_used_in_one_package_and_exist():
    outside = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        if path.parent != LOCAL
        for name in private_names(path)
    ]
    assert outside == []
    for path in LOCAL.glob("*.py"):
        for name in private_names(path):
            assert found(name) is not None, f"{path.name}: {name}"


def test_every_module_that_uses_private_names_is_in_the_list():
    using = {path.stem for path in LOCAL.glob("*.py") if any(private_names(path))}
    assert using == {module for module, _, _ in PATCHES}


def private_names(path: Path) -> Iterator[str]:
    """The names that a file imports from Dagster's private modules, as `module:name`."""
    if not IMPORT.search(path.read_text()):
        return
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and is_private(node.module or ""):
            yield from (f"{node.module}:{alias.name}" for alias in node.names)
        if isinstance(node, ast.Import):
            yield from (f"{alias.name}:" for alias in node.names if is_private(alias.name))


def is_private(module: str) -> bool:
    package, *rest = module.split(".")
    if package in ("dagster_webserver", "dagster_graphql", "dagster_shared"):
        return True
    return package == "dagster" and any(part.startswith("_") for part in rest)


def found(name: str) -> Any:
    """The object that `module:attribute.attribute` names."""
    module, _, path = name.partition(":")
    thing: Any = importlib.import_module(module)
    for attribute in filter(None, path.split(".")):
        if not hasattr(thing, attribute):
            # A module of a package that is not loaded yet.
            thing = importlib.import_module(f"{module}.{attribute}")
            continue
        thing = getattr(thing, attribute)
    return thing
