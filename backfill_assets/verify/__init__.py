"""The checklist of a rebuild that is not published yet, and the verdict on it."""
