"""spark: the Spark session, the warm engine, and how Spark reads a slice.

Does not write to tables: rows are committed by `lake/commit.py`.
Read `session.py` first.
"""
