"""tables: the declarations of a project: tables, windows, columns, and their code version.

Does not read or write rows.
Read `declaration.py` first.
"""
