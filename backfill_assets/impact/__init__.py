"""impact: find what an edit of a project makes outdated, and build a few days with it to see.

Changes no table. Read `impact.py` first.
"""
