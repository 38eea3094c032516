"""local: every patch of Dagster and every use of its private names, most for `backfill up`.

Does not hold code that needs only Dagster's public API: that is in `orchestration`.
Read `run_launcher.py` first; `tests/orchestration/test_patches.py` lists the patches.
"""
