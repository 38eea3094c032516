"""What the command line takes, as types: named once, used by every verb that takes it. Nothing but typer is imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Literal, get_type_hints

import typer

Port = Annotated[int, typer.Option(min=1, max=65535, help="Port of the Dagster UI.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PlanId = Annotated[
    str,
    typer.Argument(metavar="[PLAN]", help="A plan's id; if not given, the one that is open, or else the last with days left."),
]


def rebuild_flags(
    partitions: Annotated[str, typer.Option(help="Days: A, A..B, A,B..C, `last 7`, or a file of them.")] = "",
    target: Annotated[str, typer.Option(help="Tables, separated by commas; all if not given.")] = "",
    only: Annotated[str, typer.Option(help="Days in these states only: missing, failed, outdated.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Days that are up to date too; with --only, just those.")] = False,
    upstream: Annotated[bool, typer.Option("--upstream", help="And what these days need and lack.")] = False,
    downstream: Annotated[bool, typer.Option("--downstream", help="And what is made from these days.")] = False,
    order: Annotated[Literal["asc", "desc"], typer.Option(help="Oldest days first, or newest.")] = "asc",
    days_per_run: Annotated[int | None, typer.Option(min=1, help="The most days launched together.")] = None,
    max_parallel: Annotated[int, typer.Option(min=1, help="The most chunks at work at once.")] = 1,
    write_mode: Annotated[
        Literal["overwrite", "merge"], typer.Option(help="Replace the days, or update them by key.")
    ] = "overwrite",
    canary: Annotated[int, typer.Option(min=0, help="So many days first, judged before the rest is started.")] = 2,
    retries: Annotated[int, typer.Option(min=0, help="How often runs that were killed or lost are launched again.")] = 2,
    budget: Annotated[str, typer.Option(help="Start nothing new after this: 30m, 2h.")] = "",
    spark_conf: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A Spark setting for this plan only.")] = None,
    reason: Annotated[str, typer.Option(help="Why; kept with every day that is built.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="It is meant, however many days it is.")] = False,
) -> dict[str, Any]:
    """The flags of a rebuild, by their names."""
    return dict(locals())


def with_rebuild_flags(verb: Callable[..., None]) -> Callable[..., None]:
    """`verb`, whose argument `flags` is filled from the flags of a rebuild."""
    shared = inspect.signature(rebuild_flags).parameters
    own = {name: each for name, each in inspect.signature(verb).parameters.items() if name != "flags"}
    types = get_type_hints(rebuild_flags, include_extras=True) | get_type_hints(verb, include_extras=True)

    @wraps(verb)
    def call(**given: Any) -> None:
        verb(**{name: given[name] for name in own}, flags=rebuild_flags(**{name: given[name] for name in shared}))

    every = [each.replace(annotation=types[name]) for name, each in (own | shared).items()]
    call.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in every}
    return call
