"""alerts: incidents of a lake, told to people by e-mail and chat.

Nothing in a step or a run sends. Read `incidents.py` first, then `send.py`.
"""
