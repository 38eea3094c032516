"""verbs: each command and its job, as one function that returns one report.

Does not print, ask or end with a code: `cli` and `orchestration` show the report.
Read `report.py` first; each other module holds verbs of one subject.
"""
