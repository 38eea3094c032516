"""servers: Dagster's code server, webserver and daemon, the run starter and the warm engine, as
child processes on one lake.

`stack` starts, watches and stops them; `children` has their commands; `child` is one process;
`home` is their folder; `pools` sets limits.
"""
