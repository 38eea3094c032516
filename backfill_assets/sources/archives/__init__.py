"""(The reading order is in ARCHITECTURE.md.)"""
