"""point_in_time: what was known at a time: as-of joins, and whether a table keeps to it."""
