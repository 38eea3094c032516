"""local: every patch of Dagster, for servers on one machine.

Does not hold what only uses Dagster's API: that is in `orchestration`.
Read `run_launcher.py` first.
"""
