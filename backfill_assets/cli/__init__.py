"""cli: the commands of `backfill`, one module per verb.

Does not decide anything: a command calls an act and prints its report.
Read `app.py` first; `exit_codes.py` says how a command ends.
"""
