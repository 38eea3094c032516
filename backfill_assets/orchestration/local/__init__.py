"""local: every patch of Dagster and every use of its private names, most for `backfill up`.

Does not hold code that Dagster's public API is enough for: that is in `orchestration`.
Read `run_launcher.py` first; `tests/orchestration/test_patches.py` lists the patches.
"""
