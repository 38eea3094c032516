"""plan: decide what to rebuild and why: status, selection, chunks, progress.

Does not use Spark or Dagster, and starts nothing.
Read `plan.py` first, then `status.py`.
"""
