"""What a process of the product makes once, and a test process would make again in each test."""

import sys
import tomllib
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from typing import Any

import jinja2
import typer.testing
from alembic.script import ScriptDirectory
from typer.main import get_command

from backfill_assets.cli import app

parse_toml = cache(tomllib.loads)
compiled = jinja2.Environment.compile
read_revisions = ScriptDirectory.from_config
pages: dict[Any, Any] = {}
revisions: dict[str | None, ScriptDirectory] = {}


def compile_once(environment: jinja2.Environment, *page: Any, **how: Any) -> Any:
    """The code of a page. Making it takes ten times longer than filling in its values."""
    syntax = (environment.autoescape, environment.trim_blocks, *sorted(environment.filters))
    key = (page, *sorted(how.items()), syntax)
    if key not in pages:
        pages[key] = compiled(environment, *page, **how)
    return pages[key]


def parse_once(text: str) -> dict[str, Any]:
    """The values of a text in TOML. Each command reads the project's pyproject.toml six times."""
    return deepcopy(parse_toml(text))


def read_once(config: Any) -> ScriptDirectory:
    """The revisions of a database of Dagster: a file for each. Each run has a database."""
    place = config.get_main_option("script_location")
    if place not in revisions:
        revisions[place] = read_revisions(config)
    return revisions[place]


def keep() -> None:
    jinja2.Environment.compile = compile_once  # type: ignore[method-assign, assignment]
    ScriptDirectory.from_config = read_once  # type: ignore[method-assign]
    # The commands are the same at each call of a test. Reading their options takes 40 ms.
    typer.testing._get_command = cache(get_command)
    app.command_line = cache(app.command_line)
    tomllib.loads = parse_once  # type: ignore[assignment]
    # Each function of Spark looks for IPython, and in every folder of Python if it is not there.
    if not find_spec("IPython"):
        sys.modules["IPython"] = None  # type: ignore[assignment]
