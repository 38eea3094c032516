"""http: deliveries that a rate-limited service answers, stored for good.

Does not send a request for status or plans: only a step does.
Read `source.py` first.
"""
