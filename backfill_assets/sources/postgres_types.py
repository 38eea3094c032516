"""PostgreSQL's types as Spark knows them, and names and texts as its SQL has them."""

import re

# Types of which Spark has the same.
AS_IT_IS = {"boolean", "smallint", "integer", "bigint", "real", "double precision", "text", "bytea"}
ARRAYS = {f"{kind}[]" for kind in AS_IT_IS} - {"bytea[]"}
WITH_ZONE, WITHOUT_ZONE = "timestamp with time zone", "timestamp without time zone"


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def plain_type(kind: str) -> str:
    """A type without its precision."""
    return re.sub(r"\([\d,]+\)", "", kind)


def is_decimal(kind: str) -> bool:
    """Whether Spark has a decimal of that precision and scale."""
    match = re.fullmatch(r"numeric\((\d+),(\d+)\)", kind)
    return bool(match) and int(match[2]) <= int(match[1]) <= 38 if match else False
