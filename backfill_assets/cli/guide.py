"""`backfill guide`: read the guides that ship with the package."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from backfill_assets.cli.options import with_flags
from backfill_assets.errors import UsageError, did_you_mean
from backfill_assets.plan.request import argument

GUIDES = Path(__file__).resolve().parents[1] / "guide"
app = typer.Typer()


@app.command()
@with_flags
def guide(
    topic: str = argument(
        "",
        "The guide to print. Without one, the topics are listed.",
        "TOPIC",
    ),
) -> None:
    """Read a guide. Without a topic, list the topics."""
    topics = sorted(path.stem for path in GUIDES.glob("*.md"))
    if not topic:
        list_topics(topics)
    elif topic in topics:
        print_markdown(read_guide(topic))
    else:
        raise UsageError(
            f"There is no guide {topic}.",
            unchanged="Nothing was done.",
            next_step=f"{did_you_mean(topic, topics)} `backfill guide` lists the topics.".strip(),
        )


def read_guide(topic: str) -> str:
    return (GUIDES / f"{topic}.md").read_text(encoding="utf-8")


def summary_of(text: str) -> str:
    """Return the first paragraph below the title, on one line."""
    _, paragraph, *_ = text.split("\n\n")
    return " ".join(paragraph.split())


def list_topics(topics: list[str]) -> None:
    width = max(map(len, topics))
    for topic in topics:
        print(f"{topic:{width}}  {summary_of(read_guide(topic))}")
    print("\nType `backfill guide TOPIC` to read one.")


def print_markdown(text: str) -> None:
    """Print Markdown: formatted on a terminal, as source through a pipe."""
    from backfill_assets.cli.terminal import terminal

    console = terminal()
    if console.is_terminal and not console.is_dumb_terminal:
        console.print(formatted(text), soft_wrap=False)
    else:
        print(text, end="")


def formatted(text: str) -> Any:
    """Return Markdown as rich prints it, with tables that do not cut words."""
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    class WholeTable(TableElement):
        def __rich_console__(self, console: Any, options: Any) -> Iterator[Table]:
            for table in super().__rich_console__(console, options):
                assert isinstance(table, Table)
                for column in table.columns:
                    column.overflow = "fold"
                yield table

    class GuideText(Markdown):
        elements = {**Markdown.elements, "table_open": WholeTable}  # noqa: RUF012

    # A link in a guide is a path inside the package: no terminal can open it.
    return GuideText(text, hyperlinks=False)
