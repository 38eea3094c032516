"""impact: find what an edit of a project makes outdated, and build a few days to see it.

Does not change any table of the lake.
Read `impact.py` first.
"""
