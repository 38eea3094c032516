"""tables: a daily table's declaration, its windows over other tables, the graph they make, and its
code version.
"""
