"""outages: power-outage changes by arrival day, as raw, staging and feature tables, with a bundled
sample.
"""
