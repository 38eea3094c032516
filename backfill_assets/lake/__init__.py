"""lake: everything about Delta: tables, commits, builds, shadows, releases, maintenance.

Does not know Dagster, plans, or how a table is computed.
Read `commit.py` first: it is the only way into a table.
"""
