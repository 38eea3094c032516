"""reproduce: build a day again from its recorded code and inputs, and compare the rows.

Does not write to any table.
Read `reproduce.py` first.
"""
