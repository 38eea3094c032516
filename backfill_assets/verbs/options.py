"""The options that a command and its job share, each declared once.

`cli/options.py` makes flags of them, and `orchestration/jobs.py` the fields of a configuration.
"""

from dataclasses import MISSING, dataclass

from backfill_assets.plan.request import DAYS, EXPECT, TABLES, VerifyExpects, argument, option

REPRODUCED_RELEASE = "A release's number: the build whose rows its readers get."
CHANNEL = "Whose readers get it: stable, candidate."
DOWNSTREAM = "Then launch the ordinary assets of Dagster that read the changed days."


@dataclass(frozen=True)
class NoOptions:
    """A command or a job with options of its own."""


@dataclass(frozen=True, kw_only=True)
class ShadowOptions:
    """A plan that is built in its shadow."""

    plan: str = argument(
        "",
        "A plan's id. Default: the only plan in a shadow.",
        "PLAN",
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(ShadowOptions):
    """The options of a verification, or the accepted checks of a plan."""

    accept: list[str] = option(
        list,
        "A check that needs a decision, by name; several by a pattern: 'changes raw/*'. The checks"
        " are not run again then.",
    )
    reason: str = option("", "Why it is accepted.")
    expect: VerifyExpects = option("plan", EXPECT)


@dataclass(frozen=True, kw_only=True)
class PreviewOptions(ShadowOptions):
    """The readers of a preview."""

    channel: str = option("", "Whose readers get it: candidate. Default: no channel.")
    reason: str = option("", "Why; kept with the channel.")


@dataclass(frozen=True, kw_only=True)
class PublishOptions(ShadowOptions):
    """The options of a publication."""

    downstream: bool = option(False, DOWNSTREAM)
    reason: str = option("", "Why; kept in the commits, the ledger, the release.")
    allow_breaking: bool = option(False, "Publish even if columns were dropped or changed type.")
    without_conflicts: bool = option(
        False,
        "Leave days that live has changed, and what is read with them, in the shadow. If days stay,"
        " this fails after the others were published.",
    )


@dataclass(frozen=True, kw_only=True)
class RollbackOptions:
    """The plan to roll back, and the options."""

    plan: str = argument("", "The plan to roll back.", "PLAN", is_required=True)
    reason: str = option("", "Why; kept in the commits, the ledger, the release.")
    force: bool = option(False, "Also restore days that others built since. Their rows are lost.")
    downstream: bool = option(False, DOWNSTREAM)


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions:
    """The archives to import, and the options."""

    files: str = option(
        "", "Only archives of these names, separated by commas; * for any characters."
    )
    full_refresh: bool = option(
        False, "Read all again, and remove rows of archives that no longer exist."
    )
    accept: str = option(
        "",
        "Import archives of these names although they have no rows, are cut off or lack columns.",
    )
    reason: str = option("", "Why they are accepted; recorded.")


@dataclass(frozen=True, kw_only=True)
class SwitchOptions:
    """The readers who get another table, and the reason."""

    table: str = argument(MISSING, "The table that readers name.", "TABLE")
    to: str = option(MISSING, "The table whose rows they get; the same one to switch back.")
    channel: str = option("stable", CHANNEL)
    reason: str = option("", "Why; kept in the release.")
    allow_breaking: bool = option(False, "Switch even if readers lose columns or days.")


@dataclass(frozen=True, kw_only=True)
class MaintainOptions:
    """The extent of the maintenance, and whether it is only shown."""

    apply: bool = option(False, "Do it. Without it, nothing is changed.")
    target: str = option("", "One table; then no release is retired. Default: all.")


@dataclass(frozen=True, kw_only=True)
class AcceptCodeOptions:
    """The days that keep the rows of earlier code, and the reason."""

    target: str = option("", "One table, by its name.", is_required=True)
    before: str = option(MISSING, "Keep the built days before this day.", metavar="DAY")
    reason: str = option("", "Why; kept in the ledger.", is_required=True)


@dataclass(frozen=True, kw_only=True)
class AdoptOptions:
    """The days to adopt, or to forget, and the reason."""

    target: str = argument("", "One table, by its name.", "TABLE")
    partitions: str = option("", f"{DAYS} Default: all that the table has.")
    fingerprint: bool = option(False, "Also read the rows, to tell later whether they changed.")
    as_of_code: bool = option(False, "Today's code, inputs and deliveries made the rows.")
    undo: bool = option(False, "Forget the adoption of these days.")
    reason: str = option("", "Why; kept in the ledger.")


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """The limits of a diff, and the changes that count as none."""

    partitions: str = option("", f"{DAYS} Default: all.")
    target: str = option("", TABLES)
    tolerance: list[str] = option(
        list,
        "Doubles of this column that differ by no more are the same: price=0.01, or price=1% of the"
        " larger one. Repeat it for several; * for any characters.",
        metavar="COLUMN=SIZE",
    )


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """The build to reproduce, and the options."""

    target: str = option("", "One table, by its name.", is_required=True)
    partitions: str = option("", "One day.", metavar="DAY", is_required=True)
    release: int | None = option(None, REPRODUCED_RELEASE, least=1)
    shuffled: bool = option(
        False, "Build the day twice from shuffled inputs: rows may not depend on their order."
    )
