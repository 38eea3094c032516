"""point_in_time: knowledge at a time: as-of joins, and the search for leaks.

Does not read or write tables: it works on DataFrames.
Read `as_of.py` first.
"""
