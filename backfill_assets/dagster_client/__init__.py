"""dagster_client: Dagster over GraphQL. Client, documents, tags."""
