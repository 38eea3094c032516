"""What is shown of a day's model: its figures, what it goes by, and a picture of its calibration."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

INCHES, DPI = (5.2, 4.2), 110
FIGURES = (
    "model_version", "trained_days", "training_examples", "test_examples", "mean_absolute_error", "median_absolute_error",
    "mean_absolute_error_of_median", "median_absolute_error_of_median", "better_by", "share_better",
)  # fmt: skip


def shown(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of the row of a day: its figures, its importances, greatest first, and its calibration as a PNG file."""
    (row,) = rows
    figures = {name.replace("_", " "): row[name] for name in FIGURES if row[name] is not None}
    importances = dict(sorted(row["importances"] or (), key=lambda each: (-each[1], each[0])))
    picture = {"calibration": calibration(row)} if row["calibration"] else {}
    return {**figures, "trained on": f"{row['trained_from']}..{row['trained_until']}", "importances": importances, **picture}


def calibration(row: Mapping[str, Any]) -> bytes:
    """A picture of the groups of `calibration`: what was predicted of each, and what came."""
    # It takes half a second to load, which only who draws pays for.
    from matplotlib.figure import Figure

    groups = row["calibration"]
    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    axes: Any = figure.subplots()
    predicted, actual = [g["predicted"] for g in groups], [g["actual"] for g in groups]
    ends = min(predicted + actual), max(predicted + actual)
    axes.plot(ends, ends, color="#a61b29", linewidth=1, label="as predicted")
    axes.plot(predicted, actual, marker="o", label=f"groups of about {groups[0]['examples']:,} examples")
    axes.set_xlabel("mean prediction")
    axes.set_ylabel("mean of what came")
    axes.set_title(f"{row['test_examples']:,} examples, lowest predictions first", fontsize=11)
    axes.legend(fontsize=8)
    png = BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()
