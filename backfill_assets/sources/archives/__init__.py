"""archives: load files of many days into a table by day, from which sources read.

Does not build tables of the project.
Read `archive.py` first.
"""
