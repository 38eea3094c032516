"""Options and arguments that several verbs take, each declared once."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from backfill_assets.cli.output import Output
from backfill_assets.errors import NOTHING_CHANGED, UsageError
from backfill_assets.plan.request import (
    ALL_TABLES,
    DAYS,
    NOTHING,
    TABLES,
    RebuildRequest,
    default_of,
    flag,
)
from backfill_assets.verbs.options import CHANNEL, NoOptions

Verb = Callable[..., None]
# Options that may be typed without a value: the value that this means, and the other values. Typer
# has no such options.
OPTIONAL_VALUES = {"--downstream": ("built", "none", "all")}


def days_in(text: str) -> str:
    """Return `text`, or the days in the file of that name, separated by lines or commas."""
    try:
        is_file = Path(text).is_file()
    except OSError:  # a list of days can be longer than a file name may be
        is_file = False
    if not is_file:
        return text
    try:
        lines = Path(text).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UsageError(
            f"{text} is not UTF-8.",
            unchanged=NOTHING_CHANGED,
            next_step="Save that list of days as UTF-8 text.",
        ) from None
    return ",".join(line.strip().rstrip(",") for line in lines if line.strip())


def file_ending_in(ending: str) -> Callable[[Path | None], Path | None]:
    """Return a check of the file that an option names. It raises UsageError for a wrong one."""

    def checked(file: Path | None) -> Path | None:
        from backfill_assets.verbs.report import refuse_file

        if file:
            refuse_file(file, [ending], "Nothing was read.")
        return file

    return checked


JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. A script needs it.")]
Svg = Annotated[
    Path | None,
    typer.Option(callback=file_ending_in(".svg"), help="Also draw the days in this .svg file."),
]
Html = Annotated[
    Path | None,
    typer.Option(callback=file_ending_in(".html"), help="Also write this .html file, as one page."),
]
Page = Annotated[
    Path,
    typer.Argument(
        callback=file_ending_in(".html"), metavar="FILE", help="The .html file to write."
    ),
]
Target = Annotated[str, typer.Option(help=TABLES)]
Channel = Annotated[str, typer.Option(help=CHANNEL)]
Partitions = Annotated[str, typer.Option(callback=days_in, help=f"{DAYS} Default: all.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The same as --target.")]
DaysArgument = Annotated[str, typer.Argument(metavar="DAYS", help="The same as --partitions.")]
_LOOKS_LIKE_DAYS = re.compile(r"\s*(\d|last\b|(all|whole)\s*(,|$)|\.\.)")
PlanId = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="A plan's id. Default: the open plan, or else the last one with days left.",
    ),
]


def table_and_days(
    table: str, days: str, *, target: str = "", partitions: str = ""
) -> tuple[str, str]:
    """Return the tables and the days that arguments or options name.

    The first argument may also be days, and days may be a file, as in --partitions. Raises
    UsageError for a second table, or if an option repeats an argument.
    """
    if not days and (_LOOKS_LIKE_DAYS.match(table) or days_in(table) != table):
        return table_and_days("", table, target=target, partitions=partitions)
    if "/" in days and not Path(days).exists():
        raise UsageError(
            f"{days} is neither days nor a file of days.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Two tables are typed as `--target {table},{days}`.",
        )
    days = either(days_in(days), partitions, "--partitions")
    return either(table, target, "--target"), days


def either(argument: str, given: str, option: str) -> str:
    """Return the value of an argument or an option. Raises UsageError if both do."""
    if argument and given:
        raise UsageError(
            f"{argument} and {option} {given} name the same thing twice.",
            unchanged=NOTHING_CHANGED,
            next_step="Leave one out.",
        )
    return argument or given


def with_flags(verb: Verb) -> Verb:
    """Give a command a flag for each parameter that is declared by `option`.

    A parameter `options` is a dataclass: the command has a flag for each of its fields, or an
    argument, and gets the dataclass. A parameter `output` gives it --json.
    """
    taken = inspect.signature(verb, eval_str=True).parameters
    own = {
        name: _parameter(name, given.annotation, given.default)
        for name, given in taken.items()
        if name not in ("options", "output")
    }
    if "output" in taken:
        own["json_"] = _parameter("json_", JSON, False)
    kind: Any = taken["options"].annotation if "options" in taken else NoOptions
    types = get_type_hints(kind)
    flags = {each.name: _parameter(each.name, types[each.name], each) for each in fields(kind)}

    # Typer keeps the line breaks of a docstring, which are for a width of 100.
    paragraphs = inspect.cleandoc(verb.__doc__ or "").split("\n\n")

    @wraps(verb)
    def call(ctx: typer.Context, **given: Any) -> None:
        options = _options(kind, ctx, {name: given.pop(name) for name in flags})
        if "options" in taken:
            given["options"] = options
        if "output" in taken:
            given["output"] = Output(given.pop("json_"))
        verb(**given)

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    both = own | flags | {"ctx": context}
    call.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    call.__signature__ = inspect.Signature(list(both.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {name: parameter.annotation for name, parameter in both.items()}
    return call


def _options(kind: Any, ctx: typer.Context, given: dict[str, Any]) -> Any:
    if issubclass(kind, RebuildRequest):
        for name, value in given.items():
            _refuse_empty(ctx, name, value)
        given["spark_conf"] = dict(map(_setting, given["spark_conf"]))
        given["expect"] = dict(map(_expectation, given["expect"]))
    return kind(**given)


def _refuse_empty(ctx: typer.Context, name: str, value: Any) -> None:
    """Raise UsageError for a flag with an empty value.

    An empty value would select everything. It is often an unset variable.
    """
    if value == "" and (source := ctx.get_parameter_source(name)) and source.name == "COMMANDLINE":
        raise UsageError(
            f"{flag(name)} has no value.",
            unchanged="Nothing was planned.",
            next_step="Give one, or leave it out.",
        )


def _parameter(name: str, of_type: Any, default: Any) -> inspect.Parameter:
    """Return a parameter as typer takes it. A field as `default` declares an option."""
    if isinstance(default, Field):
        metadata: Mapping[str, Any] = default.metadata
        default = default_of(default)
        is_list = default in ([], {})
        declared = typer.Argument if metadata["is_argument"] else typer.Option
        of_type = Annotated[
            list[str] if is_list else of_type,
            declared(
                *([flag(name.rstrip("_"))] if declared is typer.Option else []),
                metavar=metadata["metavar"],
                help=metadata["help"],
                min=metadata["least"],
                callback=days_in if name == "partitions" else None,
            ),
        ]
        default = [] if is_list else inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=of_type
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(
            f"--spark-conf {text} is not a Spark setting.",
            unchanged="Nothing was started.",
            next_step="Type it as spark.sql.shuffle.partitions=8.",
        )
    return name.strip(), value.strip()


def _expectation(text: str) -> tuple[str, str]:
    if text.strip() == NOTHING:
        return ALL_TABLES, NOTHING
    table, colon, columns = text.partition(":")
    if not colon or not columns.strip():
        raise UsageError(
            f"--expect {text} names no columns.",
            unchanged="Nothing was planned.",
            next_step="Type it as 'features/region_daily: cents_7d', or `--expect nothing`.",
        )
    return table.strip(), columns.strip()


class Command(TyperCommand):
    """A command with options that may be typed without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(with_values(args)))


def with_values(typed: Sequence[str]) -> Iterator[str]:
    """Add the default value to options that were typed without one."""
    for word, after in pairwise([*typed, ""]):
        values = OPTIONAL_VALUES.get(word, ())
        yield f"{word}={values[0]}" if values and after not in values else word
