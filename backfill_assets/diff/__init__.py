"""Which rows differ between two versions of tables: values, comparison, words."""
