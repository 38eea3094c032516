"""alerts: find the incidents of a lake, and tell people by e-mail and in chats.

Does not run within steps or runs: a sensor or a command looks and sends.
Read `incidents.py` first.
"""
