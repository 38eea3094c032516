"""archives: split large files of many days on command, and join them with a landing.

Does not build tables of the project.
Read `archive.py` first.
"""
