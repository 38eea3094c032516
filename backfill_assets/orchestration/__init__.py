"""orchestration: assets, reporting, jobs, schedules and the event log; the only code that knows Dagster's Python API."""
