"""quality: what a day's rows are measured by, and what they must promise. No Dagster in it."""
