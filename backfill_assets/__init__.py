"""Rebuild the history of daily tables safely."""
