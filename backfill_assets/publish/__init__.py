"""publish: decide what readers get: publish a plan, take it back, release live.

Does not compute rows or use Spark: it moves files and adds releases.
Read `publish.py` first.
"""
