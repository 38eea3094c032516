"""datasets: the example projects, each a source with its tables.

Does not contain anything that your own project needs.
Read `outages/project.py` first.
"""
