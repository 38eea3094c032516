"""What an error of a computation concerns, and its text for the record of a day."""

from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from backfill_assets.errors import (
    BackfillError,
    InputsChanged,
    NotRecorded,
    ServiceUnavailable,
    UsageError,
)
from backfill_assets.lake.storage import is_disk_full
from backfill_assets.quality.masking import MASKED
from backfill_assets.tables.declaration import Table

_OF_STEP = (InputsChanged, NotRecorded, UsageError, ServiceUnavailable)
# Every day would raise these errors. A TypeError or an AttributeError may concern a single day,
# such as `rows.first().cents` for a day without rows.
_OF_CODE = (AnalysisException, ImportError, NameError, SyntaxError)
# Conditions of AnalysisException that a day's files cause, not the code.
_OF_FILES = {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}


def is_of_step(error: Exception) -> bool:
    """True if no day can be computed: wrong request, lost engine or full disk."""
    return isinstance(error, _OF_STEP) or is_engine_gone(error) or is_disk_full(error)


def may_be_of_days(error: Exception) -> bool:
    """True if other days may still be computed without the failing day."""
    return not is_of_step(error) and (
        not isinstance(error, _OF_CODE) or _condition(error) in _OF_FILES
    )


def may_quote(error: Exception, table: Table) -> bool:
    """True if the text of an error may have a value of a masked column.

    The value may be of the table, or of a table that it is made from.
    """
    is_masked = any(each.mask for each in table.ancestors())
    return is_masked and not isinstance(error, (*_OF_CODE, BackfillError))


def failure_text(error: Exception, table: Table) -> str:
    """The error as text, at most 2,000 characters, for the record of a day.

    If it may quote a masked value, only its name and Spark's condition.
    """
    name = type(error).__name__
    if may_quote(error, table):
        return f"{name}: {_condition(error) or MASKED}. Its text may quote masked values"
    return f"{name}: {str(error)[:2000]}"


def is_engine_gone(error: Exception) -> bool:
    """True if the engine does not answer or was restarted. Such an error is not about a day.

    A run that is being stopped often loses its engine first, because both get the same signal.
    """
    is_closed = isinstance(error, (Py4JNetworkError, ConnectionError))
    if is_closed or "SparkContext was shut down" in str(error):
        return True
    answer = error.getGrpcStatusCode().name if isinstance(error, SparkConnectGrpcException) else ""
    return answer == "UNAVAILABLE" or _condition(error).startswith("INVALID_HANDLE.")


def _condition(error: Exception) -> str:
    """Spark's name of the error, such as DIVIDE_BY_ZERO; "" if it is not an error of Spark."""
    return (error.getCondition() or "") if isinstance(error, PySparkException) else ""
