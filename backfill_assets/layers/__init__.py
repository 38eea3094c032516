"""layers: what rows mean. Pure functions of DataFrames; the only part that a new dataset replaces."""
