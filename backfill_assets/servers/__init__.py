"""servers: Dagster's webserver and daemon and the warm engine, as child processes on one lake.

`stack` starts, watches and ends them; `child` is one process; `place` is what they find on disk; `pools` are their limits.
"""
