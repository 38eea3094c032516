"""What an SVG of days shows, read from its shapes and its legend alone."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

NS = "{http://www.w3.org/2000/svg}"
SHAPE = re.compile(r"M(\d+) ([\d.]+)h(\d+)v([\d.]+)h-\d+z")
COLOUR = re.compile(r"\.bf-days \.(c\d+) \{ fill: (#[0-9a-f]{6}); \}")


@dataclass(frozen=True)
class Drawn:
    """The rows of a picture: for each table and column, the part of the height of each state.

    `framed`: the number of columns with a frame, by table. `colours`: on white and on black, by
    state.
    """

    rows: dict[str, dict[int, dict[str, float]]]
    framed: dict[str, int]
    legend: dict[str, str]
    colours: list[dict[str, str]]
    titles: list[str]

    def states(self) -> dict[str, list[str]]:
        """The states of each table from left to right, where each column has one."""
        return {
            name: [state for _, (state,) in sorted(columns.items())]
            for name, columns in self.rows.items()
        }


def drawn(text: str) -> Drawn:
    """Read a picture. It must be well-formed XML of SVG without scripts."""
    root = ElementTree.fromstring(text)
    assert {each.tag for each in root.iter()} <= {
        f"{NS}{tag}" for tag in ("svg", "title", "desc", "style", "rect", "text", "g", "path")
    }
    children = list(root)
    legend = {
        before.get("class", ""): str(text.text)
        for before, text in pairwise(children)
        if before.tag == f"{NS}rect" and text.tag == f"{NS}text" and before.get("class") != "back"
    }
    rows: dict[str, dict[int, dict[str, float]]] = {}
    heights: dict[str, str] = {}
    for text_of_row, group in pairwise(children):
        if group.tag == f"{NS}g":
            name = str(text_of_row.text)
            heights[str(int(group.get("transform", "").split()[1].rstrip(")")) - 1)] = name
            rows[name] = {}
            for path in group.iter(f"{NS}path"):
                _add(rows[name], path, legend)
    framed = dict.fromkeys(rows, 0)
    for path in root.findall(f"{NS}path[@class='frame']"):
        tops = re.findall(r"M[\d.]+ (\d+)", path.get("d", ""))
        if tops:
            framed[heights[tops[0]]] = len(tops)
    style = str(root.findtext(f"{NS}style"))
    light, dark = (dict(COLOUR.findall(part)) for part in style.split("@media"))
    by_state = [{legend[name]: of[name] for name in of} for of in (light, dark)]
    titles = [str(title.text) for title in root.iter(f"{NS}title")]
    return Drawn(rows, framed, legend, by_state, titles)


def _add(row: dict[int, dict[str, float]], path: Any, legend: dict[str, str]) -> None:
    shape = SHAPE.fullmatch(path.get("d"))
    assert shape, path.get("d")
    first = int(shape[1])
    for column in range(first, first + int(shape[3])):
        state = legend[path.get("class")]
        assert state not in row.setdefault(column, {})
        row[column][state] = float(shape[4])


def lightness(colour: str) -> float:
    """The lightness L* of a colour, 0 to 100."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    luminance = sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance
