"""sources: where the rows of raw tables come from; landing folders, and the manifest of what was
delivered.
"""
