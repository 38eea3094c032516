"""The present incidents of a lake, and what became of messages about them."""

from collections.abc import Iterator
from dataclasses import dataclass

from backfill_assets.alerts.incidents import Incident, look_for_incidents
from backfill_assets.alerts.send import NOT_TAKEN, OUTCOMES, Outcomes, send_to_all, tell
from backfill_assets.alerts.told import incident_lines, read_told
from backfill_assets.errors import SettingsError
from backfill_assets.publish.release_live import Runs, no_runs
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.verbs.report import Report
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class AlertsReport(Report):
    incidents: tuple[Incident, ...]

    @property
    def is_complete(self) -> bool:
        """True if nothing need be done."""
        return not any(incident.commands for incident in self.incidents)

    def lines(self) -> Iterator[str]:
        for incident in self.incidents:
            yield "\n  ".join(incident_lines(incident))
        if not self.incidents:
            yield "Nothing needs attention."


@dataclass(frozen=True)
class SentReport(Report):
    """The outcome for each URL that got a message."""

    outcomes: Outcomes

    @property
    def is_complete(self) -> bool:
        return not any(self.outcomes.values())

    def lines(self) -> Iterator[str]:
        for name, outcome in self.outcomes.items():
            yield f"{name}: {OUTCOMES.get(outcome, NOT_TAKEN)}"
        if not self.outcomes:
            yield "Nothing was sent. What is new is sent if the next look finds it too."


def list_alerts(workspace: Workspace) -> AlertsReport:
    """List the present incidents. The time is known if the sensor has seen them."""
    told = read_told(workspace.lake.root)
    look = look_for_incidents(workspace, utc_now(), earlier=told.incidents)
    return AlertsReport(told.after(*look).incidents)


def send_alerts(workspace: Workspace, *, is_test: bool = False, runs: Runs = no_runs) -> SentReport:
    """Send what is new, or a test. Raises SettingsError without a URL, and what `tell` raises."""
    settings = workspace.settings
    if not settings.alerts:
        raise SettingsError(
            "BACKFILL_ALERTS is not set.",
            unchanged="Nothing was sent.",
            next_step="Set it: `backfill guide operations` explains it.",
        )
    if is_test:
        return SentReport(
            send_to_all(settings, f"backfill: a test ({settings.project})", "A test.")
        )
    return SentReport(tell(workspace, utc_now(), runs))
