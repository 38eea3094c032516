"""Send one message through one URL of apprise, in a process of its own.

A service that never answers is ended with the process, and libraries cannot log a URL anywhere. The
message comes on stdin.
"""

import json
import sys

SENT, FAILED, WRONG_URL = range(3)


def main() -> int:
    """Send the message. Without a title, only check the URL."""
    from apprise import Apprise, NotifyBase, NotifyFormat, OverflowMode

    # Chats refuse a long message. A URL with `overflow` decides otherwise.
    NotifyBase.overflow_mode = OverflowMode.SPLIT
    message = json.load(sys.stdin)
    service = Apprise.instantiate(message.pop("url"))
    if service is None:
        return WRONG_URL
    text = NotifyFormat.TEXT
    is_sent = not message["title"] or Apprise(service).notify(**message, body_format=text)
    return SENT if is_sent else FAILED


if __name__ == "__main__":
    sys.exit(main())
