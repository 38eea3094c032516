"""What `backfill late` prints as one HTML page that needs nothing else, with a picture of when rows arrived."""

from collections.abc import Callable, Sequence
from io import StringIO

from rich.console import Console

from backfill_assets.cli.rendering import WIDTH_OF_A_PIPE
from backfill_assets.plan.arrivals import Arrivals
from backfill_assets.plan.arrivals_picture import data_uri

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Late rows</title></head>
<body style="font-family: system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem">
<h1>Late rows</h1>
{images}
<pre style="overflow-x: auto">{code}</pre>
</body></html>
"""


def page(arrivals: Sequence[Arrivals], show: Callable[[Console], None]) -> str:
    """The whole page: the pictures, and below them what `show` prints."""
    console = Console(
        record=True, file=StringIO(), width=WIDTH_OF_A_PIPE, highlight=False, markup=False, soft_wrap=True, legacy_windows=False
    )
    show(console)
    images = [
        f'<img style="max-width: 100%" alt="Rows of {each.table}" src="{data_uri(each)}">' for each in arrivals if each.rows
    ]
    return console.export_html(code_format=PAGE.replace("{images}", "\n".join(images)), inline_styles=True)
