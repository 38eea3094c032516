"""datasets: sources with their tables in the three layers. A project of one's own takes their
place.
"""
