"""files: deliveries in files, by day, on a disk or in an object store.

Does not split files on command: that is `sources/archives`.
Read `landing.py` first.
"""
