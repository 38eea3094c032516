"""orchestration: assets, report, jobs, schedules, event log, daemon; the only code that knows
Dagster's Python API.
"""
