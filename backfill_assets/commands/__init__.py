"""commands: one file a verb of `backfill`. They print and call; what they call lives elsewhere."""
