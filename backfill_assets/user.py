"""The user of this process, for records."""

import getpass


def user_name() -> str:
    """The name of the user. Bytes that are not UTF-8 are escaped."""
    return getpass.getuser().encode(errors="backslashreplace").decode()
