"""step: a partition's way through a run (due, read, compute, audit, commit, record), the same for
every table.
"""
