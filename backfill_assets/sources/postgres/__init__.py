"""postgres: the days of a table or view in PostgreSQL.

Does not write to the database.
Read `source.py` first.
"""
