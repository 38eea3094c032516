"""dagster_client: Dagster over GraphQL, with its documents and tags.

Does not import Dagster, and knows nothing of the lake.
Read `client.py` first.
"""
