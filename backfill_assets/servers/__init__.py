"""servers: start, watch and stop Dagster, the run starter and the engine as child processes.

Does not import Dagster or Spark into its own process.
Read `stack.py` first.
"""
