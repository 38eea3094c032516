"""A request for a rebuild.

It is the same value for flags, a job's configuration, and code. The flags of the command line and
the fields of the jobs `backfill_make_plan` and `backfill_run_plan` are made from the fields of
`RebuildRequest` and `RunRequest`. A new option is a new field.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from backfill_assets.errors import UsageError
from backfill_assets.grouping import comma_separated
from backfill_assets.lake.spark.conf import refuse_unlisted
from backfill_assets.step.accept import refuse_without_reason

DayOrder = Literal["asc", "desc"]
Into = Literal["auto", "live", "shadow"]
VerifyExpects = Literal["plan", "nothing"]
EXPECT = "nothing: any changed row needs a decision. plan: what the plan says (--expect)."
Downstream = Literal["none", "built", "all"]
# The pattern of a list of tables.
TABLES = (
    "Tables, separated by commas: NAME, raw/*, +NAME, NAME+ (with what is up- or downstream),"
    " group:raw; all if not given."
)
DAYS = "Days: A, A..B, A.., ..B, a month (2019-09), A,B..C, `last 7`, `all`, or a file of days."
# The word of `--expect` for a table whose rows may not change, and for all tables.
NOTHING = "nothing"
ALL_TABLES = "*"
MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}


def option(
    default: Any,
    help: str,
    *,
    least: int | None = None,
    metavar: str | None = None,
    is_argument: bool = False,
    is_required: bool = False,
) -> Any:
    """A field with its help. Without a default (`MISSING`), a command and a job require it.

    `least` is the smallest number allowed. `is_required`: a job requires it; a command may get it
    in another way.
    """
    metadata = {
        "help": help,
        "least": least,
        "metavar": metavar,
        "is_argument": is_argument,
        "is_required": is_required or default is MISSING,
    }
    return (
        field(default_factory=default, metadata=metadata)
        if callable(default)
        else field(default=default, metadata=metadata)
    )


def argument(default: Any, help: str, metavar: str, **more: Any) -> Any:
    """An option that is an argument of a command: it has no flag."""
    return option(default, help, metavar=metavar, is_argument=True, **more)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of a plan. Raises UsageError for a value that is not allowed."""

    force: bool = option(
        False, "Also days that are up to date; with --only, restricted to those states."
    )
    order: DayOrder = option("asc", "asc: oldest days first. desc: newest first.")
    days_per_run: int | None = option(
        None,
        "The most days launched together; the setting BACKFILL_DAYS_PER_RUN if not given.",
        least=1,
    )
    max_parallel: int = option(1, "The most chunks launched at once.", least=1)
    write_mode: Literal["overwrite", "merge"] = option(
        "overwrite",
        "overwrite: replace the days. merge: update and insert by key, keep other rows; a day that"
        " keeps rows of other code, files or inputs stays outdated. Not available for cumulative"
        " tables (`itself()`).",
    )
    canary: int | None = option(
        None,
        "How many days to build first; the rest starts only if they succeed. 0 for none. If not"
        " given: 2, and none for a plan in a shadow that one run can build.",
        least=0,
    )
    into: Into = option(
        "auto",
        "live: write the days at once. shadow: build them unseen, until they are published. auto: a"
        " shadow, if readers of a release have any of these days, else live.",
    )
    retries: int = option(2, "How often runs that were killed or lost are launched again.", least=0)
    budget: str = option(
        "", "Launch nothing new after this: 90s, 30m, 2h, 1d. No limit if not given."
    )
    spark_conf: Mapping[str, str] = option(
        dict,
        "Spark settings for this plan only (resources, shuffles, joins, memory), such as"
        " spark.executor.memory=4g.",
        metavar="K=V",
    )
    expect: Mapping[str, str] = option(
        dict,
        "What the plan is meant to change, as 'features/region_daily: cents_7d': columns with"
        " commas, `added` or `removed` for rows, * for everything. `verify` then asks about other"
        " changes only. `nothing`, or 'TABLE: nothing': it asks about any changed row.",
        metavar="TABLE:COLUMNS",
    )
    accept: str = option(
        "",
        "Files that may be empty, gone, cut off, far shorter or of other columns; columns that may"
        " be null; rules of a source's table that may be broken: names, with commas; * stands for"
        " any characters. Requires --reason.",
    )
    replace_foreign_rows: bool = option(
        False,
        "Also occupied days: replace rows that another program wrote to them. A rollback puts these"
        " back. Requires --reason.",
    )
    reason: str = option("", "Why; kept with every day that is built.")

    def __post_init__(self) -> None:
        # `backfill --help` reads these fields, and must not wait for Arrow.
        from backfill_assets.lake.ledger import refuse_unstorable_text

        for name, least in ((each.name, each.metadata["least"]) for each in fields(self)):
            value = getattr(self, name)
            if least is not None and value is not None and value < least:
                raise UsageError(
                    f"{flag(name)} {value} is too small.",
                    unchanged="Nothing was planned.",
                    next_step=f"Give at least {least}.",
                )
        for name, text in (("reason", self.reason), ("accept", self.accept)):
            refuse_unstorable_text(flag(name), text)
        _ = self.budget_minutes
        refuse_unlisted(self.spark_conf)

    @property
    def expected(self) -> dict[str, frozenset[str]]:
        """The columns that the plan is meant to change, by table ("*": of every table)."""
        return {table: frozenset(comma_separated(names)) for table, names in self.expect.items()}

    def expected_of(self, table: str) -> frozenset[str]:
        """The columns of a table that the plan is meant to change."""
        of_all = self.expected.get(ALL_TABLES, frozenset())
        return self.expected.get(table, of_all)

    @property
    def expects_nothing(self) -> bool:
        """True if no row of some table may change."""
        return any(NOTHING in columns for columns in self.expected.values())

    @property
    def budget_minutes(self) -> float:
        """The budget in minutes; 0 is no limit."""
        text = self.budget.strip()
        length = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
        if text and (not length or not float(length[1])):
            raise UsageError(
                f"--budget {text} is not a length of time.",
                unchanged="Nothing was started.",
                next_step="Type 90s, 30m, 2h or 1d.",
            )
        return float(length[1]) * MINUTES[length[2]] if length else 0.0


@dataclass(frozen=True, kw_only=True)
class RebuildRequest(PlanOptions):
    """The partitions to rebuild, as the user named them, and how."""

    partitions: str = option("", DAYS)
    target: str = option("", TABLES)
    only: str = option(
        "", "Days in these states only, separated by commas: missing, failed, outdated, occupied."
    )
    upstream: bool = option(False, "Also what these days need, where it is missing or outdated.")
    downstream: Downstream = option(
        "none",
        "Also days downstream of these: built, in tables that were built before; all, in every"
        " table.",
        metavar="[=all]",
    )
    downstream_since: str = option("", "Downstream: no days before this one, YYYY-MM-DD.")
    leave_protected: bool = option(
        False, "Leave out protected days; without it, a plan with one of them is refused."
    )
    yes: bool = option(
        False,
        "Do not ask, and plan any number of days; without it, no more than"
        " BACKFILL_ASK_ABOVE_DAYS.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_without_reason(self.reason, self.accept, replaces=self.replace_foreign_rows)

    def given(self) -> list[str]:
        """The names of the fields that differ from their default."""
        return [each.name for each in fields(self) if getattr(self, each.name) != default_of(each)]

    def options(self, days_per_run: int) -> PlanOptions:
        """Return the options. `days_per_run` applies if the request has no value."""
        values = {each.name: getattr(self, each.name) for each in fields(PlanOptions)}
        return PlanOptions(**values | {"days_per_run": self.days_per_run or days_per_run})


@dataclass(frozen=True, kw_only=True)
class RunRequest(RebuildRequest):
    """A plan to carry out, or a request to plan and carry out.

    Raises UsageError if a plan is named together with other options than `yes`, which then has no
    effect.
    """

    plan: str = argument(
        "",
        "A plan's id. Default: the other options make a new plan.",
        "PLAN",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        others = [flag(name) for name in self.given() if name not in ("plan", "yes")]
        if self.plan and others:
            raise UsageError(
                "A plan is carried out as it was made.",
                unchanged="Nothing was started.",
                next_step=f"Leave out {', '.join(others)}, or leave out the plan.",
            )


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def default_of(field: Any) -> Any:
    """The default of an option; `MISSING` if it has none."""
    has_factory = field.default_factory is not MISSING
    return field.default_factory() if has_factory else field.default
