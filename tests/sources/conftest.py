"""What tests of the landing area share."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

NOBODY = 65534


@pytest.fixture
def nobody() -> Callable[[Path], AbstractContextManager[None]]:
    """Runs a block as a user who owns nothing, for root may read everything. The folders above `path` are opened to all."""

    @contextmanager
    def as_nobody(path: Path) -> Iterator[None]:
        user = os.geteuid()
        opened = {folder: folder.stat().st_mode for folder in path.parents if folder.stat().st_uid == user}
        opened[path] = path.stat().st_mode
        for folder, mode in opened.items():
            folder.chmod(mode | 0o555)
        try:
            if user == 0:
                os.seteuid(NOBODY)
            yield
        finally:
            os.seteuid(user)
            for folder, mode in opened.items():
                folder.chmod(mode)

    return as_nobody
