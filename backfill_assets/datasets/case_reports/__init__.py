"""case_reports: daily case counts, one file a day, with columns that changed over time.

Does not know paths, Dagster or settings: tables are functions of DataFrames.
Read `project.py` first.
"""
