"""datasets: a source with its tables in the three layers. What another project replaces."""
