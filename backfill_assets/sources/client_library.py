"""Libraries by which servers are asked: only who has such a source installs them."""

from collections.abc import Iterator
from contextlib import contextmanager

from backfill_assets.errors import StillWritten


@contextmanager
def client_library(library: str, source: str, extra: str) -> Iterator[None]:
    """The block imports `library`. StillWritten that says how to install it, if it cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise StillWritten(
            f"{source} cannot be asked: {library} is not installed ({error}). Days stay as they were built. Install it where "
            f"`backfill up` and commands are typed: pip install 'backfill-assets[{extra}]'"
        ) from None
