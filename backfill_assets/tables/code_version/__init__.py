"""code_version: a hash of everything in a project that a table's rows depend on.

Does not run the code: it reads its source and follows names.
Read `version.py` first.
"""
