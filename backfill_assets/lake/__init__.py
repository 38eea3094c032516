"""lake: the only code that knows Delta: sessions, slices, reading, replacing, the ledger, locks."""
