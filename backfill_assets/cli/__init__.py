"""cli: the commands of `backfill`, one module per group of the help.

Does not decide anything: a command calls a verb and prints its report.
Read `app.py` first; `exit_codes.py` says how a command ends.
"""
