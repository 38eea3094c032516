"""step: build days of one table, from the request to the record.

Does not choose what to rebuild, and does not report to Dagster.
Read `step.py` first.
"""
