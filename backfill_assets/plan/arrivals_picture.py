"""A picture of rows by arrival day and by days of lateness."""

from base64 import b64encode
from io import BytesIO
from typing import Any

from backfill_assets.calendar import between
from backfill_assets.plan.late import Arrivals

# The number of newest arrival days in the picture. With more, the columns would be too narrow.
MOST_DAYS = 90
# 900 pixels wide: Dagster's dialog shows a picture in its own size, and cuts off the rest.
INCHES = (9, 4)
DPI = 100


def picture(arrivals: Arrivals) -> bytes:
    """The picture as a PNG file. `arrivals` must have rows."""
    # Loading takes half a second, which no other command needs.
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    last = max(day for day, _, _ in arrivals.rows)
    days = list(between(min(day for day, _, _ in arrivals.rows), last))[-MOST_DAYS:]
    # Below the day itself are rows about later days; above the horizon are rows about earlier or
    # unknown days.
    beyond = arrivals.horizon + 1
    grid = [[float("nan")] * len(days) for _ in range(arrivals.horizon + 3)]
    for day, about, rows in arrivals.rows:
        if day >= days[0]:
            lag = beyond if about is None else max(min((day - about).days, beyond), -1)
            cells = grid[lag + 1]
            column = (day - days[0]).days
            cells[column] = rows + (0 if cells[column] != cells[column] else cells[column])
    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    axes: Any = figure.subplots()
    edges = (-0.5, len(days) - 0.5, -1.5, beyond + 0.5)
    drawn = axes.imshow(
        grid,
        aspect="auto",
        origin="lower",
        extent=edges,
        cmap="viridis_r",
        norm=LogNorm(),
        interpolation="none",
    )
    for above, words in (
        (arrivals.watermark, "late above this line"),
        (arrivals.horizon, "in no day above this line"),
    ):
        axes.axhline(above + 0.5, color="#a61b29", linewidth=1)
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
        axes.text(
            -0.3, above + 0.65, words, color="#a61b29", fontsize=8, ha="left", va="bottom", bbox=box
        )
    steps = range(0, len(days), max(len(days) // 8, 1))
    axes.set_xticks(list(steps), [str(days[n]) for n in steps], fontsize=8)
    lags = [-1, *range(0, beyond, max(beyond // 7, 1)), beyond]
    axes.set_yticks(lags, ["before", *map(str, lags[1:-1]), "beyond"], fontsize=8)
    axes.set_ylabel("days after the day they are about")
    axes.set_title(
        f"Rows of {arrivals.table} by the day they arrived, {days[0]} to {days[-1]}", fontsize=11
    )
    figure.colorbar(drawn, label="rows", pad=0.01)
    png = BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def data_uri(arrivals: Arrivals) -> str:
    """The picture as a data URI, for a page or for Markdown."""
    return f"data:image/png;base64,{b64encode(picture(arrivals)).decode()}"
