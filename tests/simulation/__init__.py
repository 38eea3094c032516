"""The real code over a simulated store or disk: one seed is one history. Start at `__main__.py`."""
