"""outages: power outages by day of arrival and by day of the event, with a bundled sample.

Does not know paths, Dagster or settings: tables are functions of DataFrames.
Read `project.py` first.
"""
