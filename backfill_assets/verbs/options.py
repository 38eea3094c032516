"""The options that a command and its job share, each declared once.

`cli/options.py` makes flags of them, and `orchestration/jobs.py` the fields of a configuration.
"""

from dataclasses import dataclass

from backfill_assets.plan.request import EXPECT, VerifyExpects, option


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """How a plan is verified, or which checks of it are accepted."""

    accept: list[str] = option(
        list,
        "A check that needs a decision, by name; several by a pattern: 'changes raw/*'. The checks"
        " are not run again then.",
    )
    reason: str = option("", "Why it is accepted.")
    expect: VerifyExpects = option("plan", EXPECT)


@dataclass(frozen=True, kw_only=True)
class PreviewOptions:
    """Who gets a preview."""

    channel: str = option("", "Whose readers get it: candidate. Default: no channel.")
    reason: str = option("", "Why; kept with the channel.")


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """How a plan is published."""

    reason: str = option("", "Why; kept in the commits, the ledger, the release.")
    allow_breaking: bool = option(False, "Publish even if columns were dropped or changed type.")
    without_conflicts: bool = option(
        False,
        "Leave days that live has changed, and what is read with them, in the shadow. If days stay,"
        " this fails after the others were published.",
    )


@dataclass(frozen=True, kw_only=True)
class RollbackOptions:
    """How a plan is rolled back."""

    reason: str = option("", "Why; kept in the commits, the ledger, the release.")
    force: bool = option(False, "Also restore days that others built since. Their rows are lost.")


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions:
    """Which archives are imported, and how."""

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
    """Whose readers get another table, and why."""

    channel: str = option("stable", "Whose readers get it: stable, candidate.")
    reason: str = option("", "Why; kept in the release.")
    allow_breaking: bool = option(False, "Switch even if readers lose columns or days.")


@dataclass(frozen=True, kw_only=True)
class MaintainOptions:
    """What is maintained, and whether it is only shown."""

    apply: bool = option(False, "Do it. Without it, nothing is changed.")
    target: str = option("", "One table; then no release is retired. Default: all.")
