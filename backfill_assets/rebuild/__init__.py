"""rebuild: a plan carried out in Dagster over GraphQL, or watched. No Spark."""
