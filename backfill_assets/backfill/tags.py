"""The tags that a rebuild's backfills and runs carry: they tie what Dagster did to who asked for it, and to its plan."""

PLAN = "backfill/plan"
CHUNK = "backfill/chunk"  # the chunk's number in its plan, from 1
LAUNCH = "backfill/launch"  # one asking; a launch whose answer was lost is found again by it
WHO = "backfill/who"
REASON = "backfill/reason"
