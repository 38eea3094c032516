"""The SQL types that a column may have: those that Spark computes, Delta keeps and its readers know, nested ones too."""

import re

# Delta's names of these are in lake/columns.py.
TYPES = frozenset(
    {
        "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE",
        "DECIMAL", "DEC", "NUMERIC", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ",
    }
)  # fmt: skip
QUOTED = r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
COMMENT = rf"(?:\s+COMMENT(?:\s*{QUOTED})+)?"
DIGITS = r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)"
DECIMAL = re.compile(rf"\b(?:DECIMAL|DEC|NUMERIC)\s*{DIGITS}", re.IGNORECASE)
TYPE = rf"(?:{'|'.join(sorted(TYPES))})\b"
FIELD = rf"(?:\w+|`[^`]+`)(?:\s*:\s*|\s+){TYPE}{COMMENT}"
# Of types that are not nested themselves: the innermost.
NESTED = re.compile(
    rf"\b(?:ARRAY\s*<\s*{TYPE}\s*>|MAP\s*<\s*{TYPE}\s*,\s*{TYPE}\s*>|STRUCT\s*<\s*{FIELD}(?:\s*,\s*{FIELD})*\s*>)",
    re.IGNORECASE,
)
COLUMN = re.compile(TYPE + COMMENT, re.IGNORECASE)
MOST_DIGITS = 38

ADVICE = {
    r"(?:VAR)?CHAR": "Spark computes no columns of that type; write STRING, and a rule for the length",
    r"NOT\s+NULL": "no table is held to NOT NULL; leave it out, and write the rule rules.no_nulls({name!r})",
    r"COLLATE": "keys and fingerprints compare text letter by letter; leave COLLATE out",
    r"DEFAULT": "a column holds what the function computes; leave DEFAULT out",
    r"GENERATED": "a column holds what the function computes; leave GENERATED out",
}


def refusal(name: str, kind: str) -> str:
    """Why the column `name` cannot have the type `kind`, and what to write; "" if it can."""
    unquoted = re.sub(QUOTED, "", kind)
    for decimal in DECIMAL.finditer(unquoted):
        digits, after_the_point = int(decimal[1]), int(decimal[2] or 0)
        if not max(1, after_the_point) <= digits <= MOST_DIGITS:
            return f"a decimal has 1 to {MOST_DIGITS} digits, and no more of them after the point"
    if COLUMN.fullmatch(_simplified(DECIMAL.sub("DECIMAL", kind))):
        return ""
    # A name before a colon is that of a field.
    words = [word for word in ADVICE if re.search(rf"\b{word}\b(?!\s*:)", unquoted, re.IGNORECASE)]
    advice = (ADVICE[word].format(name=name) for word in words)
    types = ", ".join(sorted(TYPES))
    return next(advice, f"{kind} is not the type of a column; write {types}, or ARRAY<>, MAP<,> and STRUCT<> of these")


def _simplified(kind: str) -> str:
    """`kind` with a plain type in place of each nested one that holds allowed types, from the innermost outwards."""
    simpler = NESTED.sub("INT", kind)
    return kind if simpler == kind else _simplified(simpler)
