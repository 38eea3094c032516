"""dagster_client: Dagster over GraphQL, with its documents and tags.

Does not import Dagster, and knows nothing of tables or plans.
Read `client.py` first.
"""
