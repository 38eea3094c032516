"""files: deliveries in files, by day, on a disk or in an object store.

Does not load files of many days: that is `sources/archives`.
Read `landing.py` first.
"""
