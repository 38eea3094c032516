"""backfill: asking for days to be built, over GraphQL, and telling what became of them. No Spark in it."""
