"""verify: the checks of a rebuilt plan before it is published, and the verdict on them.

Does not use Spark, and publishes nothing.
Read `verify.py` first.
"""
