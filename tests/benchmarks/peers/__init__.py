"""Other tools that rebuild days, on the same files and tables.

Run it with `python -m tests.benchmarks.peers`.
"""
