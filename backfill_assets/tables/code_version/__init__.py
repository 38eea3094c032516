"""The version of a table's code and of its rules: hashes of their source, and of what it uses.

Nothing is imported or run for it, and nothing outside the project counts.
Read version.py first. source.py reads files as text; rules.py is about the rules of a table.
"""
