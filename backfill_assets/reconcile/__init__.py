"""reconcile: the ledger, the tables and Dagster's record, compared."""
