"""Which errors of a computation concern the whole step, and which single days."""

from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from backfill_assets.errors import InputsChanged, NotRecorded, ServiceUnavailable, UsageError
from backfill_assets.lake.storage import is_disk_full

# To be computed again; built, and not to be recorded as failed later; not to be computed at all.
_OF_STEP = (InputsChanged, NotRecorded, UsageError, ServiceUnavailable)
# Every day would raise these. A TypeError or an AttributeError may be of one: `rows.first().cents`
# of a day without rows.
_OF_CODE = (AnalysisException, ImportError, NameError, SyntaxError)
# Conditions under which Spark's analysis finds no fault with the code, but with the files of some
# day.
_OF_FILES = {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}


def is_of_step(error: Exception) -> bool:
    """Whether no day could be computed now: the request is wrong, or the engine, or the room on a
    disk, is gone.
    """
    return isinstance(error, _OF_STEP) or _is_engine_gone(error) or is_disk_full(error)


def may_be_of_days(error: Exception) -> bool:
    """Whether other days may be computed without the one that raised it."""
    return not is_of_step(error) and (
        not isinstance(error, _OF_CODE) or _condition(error) in _OF_FILES
    )


def failure_text(error: Exception) -> str:
    """An error as it is recorded of a day."""
    return f"{type(error).__name__}: {str(error)[:2000]}"


def _is_engine_gone(error: Exception) -> bool:
    """Whether a Spark Connect server does not answer, or is another one than the session was opened
    on.
    """
    answer = error.getGrpcStatusCode().name if isinstance(error, SparkConnectGrpcException) else ""
    return answer == "UNAVAILABLE" or _condition(error).startswith("INVALID_HANDLE.")


def _condition(error: Exception) -> str:
    """Spark's name of an error, such as DIVIDE_BY_ZERO; "" for what is no error of Spark's."""
    return (error.getCondition() or "") if isinstance(error, PySparkException) else ""
