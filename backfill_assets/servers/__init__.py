"""servers: Dagster's webserver and daemon and the warm engine, as child processes on one lake.

`stack` starts, watches and stops them; `child` is one process; `home` is their folder; `pools` sets limits.
"""
