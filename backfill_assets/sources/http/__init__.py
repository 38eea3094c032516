"""http: deliveries from a rate-limited service, stored permanently.

Does not send a request for status or plans: only a step does.
Read `source.py` first.
"""
