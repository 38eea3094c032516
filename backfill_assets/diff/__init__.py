"""diff: compare the rows of two versions of tables, day by day.

Does not use Spark, and changes no table.
Read `diff.py` first: it has the values that the others make and print.
"""
