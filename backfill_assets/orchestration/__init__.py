"""orchestration: Dagster's definitions: assets, checks, jobs, schedules and sensors.

Does not decide or compute anything: it calls `step` and the acts, and reports.
Read `assets.py` first.
"""
