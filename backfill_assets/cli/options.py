"""Options and arguments that several verbs take, each declared once."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from backfill_assets.errors import UsageError
from backfill_assets.plan.request import TABLES, RebuildRequest, default_of, flag

Port = Annotated[int, typer.Option(min=1, max=65535, help="Port of the Dagster UI.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Target = Annotated[str, typer.Option(help=TABLES)]
PlanId = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="A plan's id; if not given, the open plan, or else the last one with days left.",
    ),
]

ShadowId = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", help="A plan's id; if not given, the only one that is in a shadow."
    ),
]
ToPublish = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help=(
            "A plan's id; if not given, the only one in a shadow, or published to other channels"
            " only."
        ),
    ),
]


def with_request(verb: Callable[..., None]) -> Callable[..., None]:
    """`verb`, whose argument `request` is made from one flag for each field of `RebuildRequest`."""
    parameters = inspect.signature(verb, eval_str=True).parameters
    own = {name: parameter for name, parameter in parameters.items() if name != "request"}
    flags = {option.name: _parameter(option) for option in fields(RebuildRequest)}

    @wraps(verb)
    def call(**given: Any) -> None:
        for name in flags:
            _refuse_empty(given["ctx"], name, given[name])
        values = {name: given[name] for name in flags}
        values["spark_conf"] = dict(_setting(text) for text in values["spark_conf"] or [])
        values["partitions"] = days_in(values["partitions"])
        verb(**{name: given[name] for name in own}, request=RebuildRequest(**values))

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    both = own | flags | {"ctx": context}
    call.__signature__ = inspect.Signature(list(both.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {name: parameter.annotation for name, parameter in both.items()}
    return call


def _refuse_empty(ctx: typer.Context, name: str, value: Any) -> None:
    """UsageError for a flag that was given without a value, as of a variable that is not set: it
    would ask for everything.
    """
    if value == "" and (source := ctx.get_parameter_source(name)) and source.name == "COMMANDLINE":
        raise UsageError(
            f"{flag(name)} has no value. Nothing was planned. Give one, or leave it out."
        )


def _parameter(option: Any) -> inspect.Parameter:
    """One field of a request as typer takes it."""
    metadata: Mapping[str, Any] = option.metadata
    kind = get_type_hints(RebuildRequest)[option.name]
    default = default_of(option)
    if option.default is MISSING:  # a mapping
        annotation: Any = Annotated[
            list[str] | None, typer.Option(metavar="K=V", help=metadata["help"])
        ]
        default = None
    elif kind is bool:
        annotation = Annotated[bool, typer.Option(flag(option.name), help=metadata["help"])]
    else:
        annotation = Annotated[kind, typer.Option(help=metadata["help"], min=metadata["least"])]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(
            f"--spark-conf {text} is not a Spark setting. Nothing was started. Type it as"
            " spark.sql.shuffle.partitions=8."
        )
    return name.strip(), value.strip()


def days_in(text: str) -> str:
    """`text` itself; if it is the name of a file, the days in that file, one a line or separated by
    commas.
    """
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
            f"{text} is not UTF-8. Nothing was planned. Save that list of days as UTF-8 text."
        ) from None
    return ",".join(line.strip().rstrip(",") for line in lines if line.strip())
