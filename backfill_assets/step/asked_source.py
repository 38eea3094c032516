"""Asking the source of a table: what it raises, whoever wrote it, is said of its own days, and of no other table's."""

from collections.abc import Callable
from typing import TypeVar

from backfill_assets.errors import BackfillError, ServiceUnavailable, SourceError, StillWritten
from backfill_assets.sources.protocol import Source

T = TypeVar("T")


def answer(source: Source, ask: Callable[[], T]) -> T | SourceError:
    """What `source` answers, or why it does not: a SourceError with the name of any other error that it raises."""
    try:
        return ask()
    except SourceError as error:
        return error
    except ServiceUnavailable as error:
        return StillWritten(str(error))
    except Exception as error:
        about = str(error) if isinstance(error, BackfillError) else f"{type(error).__name__}: {error}"
        what = f"the source {source.name} ({type(source).__name__}) cannot be asked"
        return SourceError(f"{what}: {about.rstrip('.')}. Its days stay as they are. Correct its declaration, or its code")
