"""rebuild: carry out a plan in Dagster, chunk by chunk, or watch it.

Does not build rows: it launches runs over GraphQL and waits for them.
Read `run.py` first.
"""
