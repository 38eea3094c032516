"""quality: measure the rows of a day, and judge them by rules.

Does not know Dagster, tables or the lake: a rule sees only a day's profile.
Read `rule.py` first.
"""
