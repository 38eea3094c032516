"""sources: where the rows of raw tables come from, one delivery per day.

Does not build tables: a source answers for days and reads their rows.
Read `protocol.py` first.
"""
