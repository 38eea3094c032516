"""Jobs of one step. Each runs one verb of the command line and shows its report.

A job is declared as data (`VerbJob`): `plan_jobs.py` and `verb_jobs.py` have the declarations. The
step is one process, without an engine if it needs none. It fails without a retry if the verb
refuses or the report is not complete.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any, get_type_hints

from dagster import (
    Config,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    in_process_executor,
    job,
    op,
)
from pydantic import Field, create_model

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.names import SPARK, own
from backfill_assets.errors import BackfillError
from backfill_assets.orchestration.local.pools import with_pool_limits
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import default_of
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.verbs.publish import plan_in_shadow
from backfill_assets.verbs.report import Report, TableContents, markdown_table, sentences
from backfill_assets.workspace import Workspace

# Messages name the flags of commands.
_FLAGS = "In a run's configuration, fields of the same names: `budget: 2h`, `'yes': true`."
# YAML would read such a value as a number or a date.
_QUOTED = ("PLAN", "DAY")


@dataclass(frozen=True)
class VerbRun:
    """A run of a job: the objects that its verb works on, and the place of its report."""

    context: OpExecutionContext
    workspace: Workspace
    dagster: Callable[[], Dagster]
    now: Callable[[], datetime]
    sleep: Callable[[float], None]

    @property
    def who(self) -> str:
        return tags.launched_by(self.context.run.tags)

    def plan(self, plan_id: str) -> Plan:
        """Return the plan with this id, or a unique beginning of it, and tag the run with it."""
        plans = Plans(self.workspace.lake.root)
        plan = plans.read(plans.full_id(plan_id))
        self.context.instance.add_run_tags(self.context.run_id, {tags.PLAN: plan.id})
        return plan

    def plan_in_shadow(self, plan_id: str) -> Plan:
        """Return the plan with this id, or without an id the only plan in a shadow, as `plan`."""
        return self.plan(plan_in_shadow(plan_id, self.workspace).id)

    def show_report(self, report: Report, metadata: Mapping[str, Any]) -> None:
        """Show the report of the verb, as `show` does."""
        self.show(sentences(report.lines()), metadata, is_complete=report.is_complete)

    def show(self, message: str, metadata: Mapping[str, Any], *, is_complete: bool = True) -> None:
        """Log the message and show the metadata. Raise Failure if the report is not complete."""
        if not is_complete:
            raise Failure(message, metadata=metadata, allow_retries=False)
        self.context.log.info(message)
        self.context.add_output_metadata(metadata)


@dataclass(frozen=True)
class VerbJob:
    """A job as data. `verb` gets the run and its options, an instance of `options`.

    In Dagster, the names of the job and of its step have our prefix (`own`).
    """

    name: str
    step: str
    options: type
    verb: Callable[[VerbRun, Any], None]
    description: str
    tags: Mapping[str, str] = field(default_factory=dict)
    needs_engine: bool = False

    @cached_property
    def config(self) -> type[Config]:
        return config_of(self.options)

    def shown_first(self) -> dict[str, Any]:
        """The initial values in the launchpad: the required fields, and the plan.

        Dagster sorts all fields by name. Other fields have the default of the command.
        """
        return {
            name: ""
            for name, option in self.config.model_fields.items()
            if option.is_required() or name == "plan"
        }


def config_of(kind: Any) -> type[Config]:
    """Return a configuration with a field for each field of the dataclass `kind`."""
    types = get_type_hints(kind)
    made: dict[str, Any] = {}
    for option in fields(kind):
        default = default_of(option)
        metadata = option.metadata
        quoted = " In quotes." if metadata["metavar"] in _QUOTED else ""
        made[option.name] = (
            dict[str, str] if default == {} else types[option.name],
            Field(
                default=... if metadata["is_required"] else default,
                description=metadata["help"] + quoted,
            ),
        )
    config: type[Config] = create_model(kind.__name__, __base__=Config, **made)
    return config


def jobs_of(
    declared: Iterable[VerbJob],
    workspace: Workspace,
    dagster: Callable[[Settings], Dagster] = dagster_of,
    now: Callable[[], datetime] = utc_now,
    sleep: Callable[[float], None] = time.sleep,
) -> list[JobDefinition]:
    """Return a Dagster job for each of the declared jobs."""

    def job_of(declaration: VerbJob) -> JobDefinition:
        @op(
            name=own(declaration.step),
            config_schema=declaration.config.to_config_schema().config_type,
            description=declaration.description,
            pool="spark" if declaration.needs_engine else None,
            required_resource_keys={SPARK} if declaration.needs_engine else None,
        )
        def run_verb(context: OpExecutionContext) -> None:
            run = VerbRun(context, workspace, lambda: dagster(workspace.settings), now, sleep)
            workspace.make_home()
            with failing_without_retry():
                config = declaration.config(**context.op_config)
                declaration.verb(run, declaration.options(**dict(config)))

        @job(
            name=own(declaration.name),
            executor_def=with_pool_limits(in_process_executor),
            config={"ops": {own(declaration.step): {"config": declaration.shown_first()}}},
            tags=declaration.tags,
            description=declaration.description,
        )
        def verb_of_workspace() -> None:
            run_verb()

        return verb_of_workspace

    return [job_of(declaration) for declaration in declared]


@contextmanager
def failing_without_retry() -> Iterator[None]:
    """Turn a BackfillError into a Failure without a retry, which would fail in the same way."""
    try:
        yield
    except BackfillError as error:
        metadata = {"error": type(error).__name__, "flags": _FLAGS}
        raise Failure(str(error), metadata=metadata, allow_retries=False) from None


def as_table(table: TableContents) -> MetadataValue:
    return MetadataValue.md(markdown_table(*table))


def as_list(lines: Iterable[str]) -> MetadataValue:
    return MetadataValue.md("\n".join(f"- {line}" for line in lines))


def as_code(lines: Sequence[str]) -> MetadataValue:
    """Return lines as a code block for the UI: values of rows may hold any text."""
    code = "\n".join(lines).replace("```", "'''")
    return MetadataValue.md(f"```\n{code}\n```")
