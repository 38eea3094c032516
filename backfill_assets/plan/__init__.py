"""plan: what to rebuild and why. Requests, status, plans with their store and history, estimates
and progress. No Spark.
"""
