"""models: fitting what is not a table, with pyspark.ml, and keeping it as a row of one."""
