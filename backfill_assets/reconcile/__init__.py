"""reconcile: compare the ledger, the tables and Dagster's record, and repair two of them.

Does not compute rows: damaged rows are restored or built again.
Read `compare.py` first.
"""
