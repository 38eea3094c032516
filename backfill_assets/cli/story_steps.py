"""What a story of `backfill demo --story` is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command as it is typed: `says` is what it shows, `code` what it ends with. `{plan}` is the plan that was made last."""

    says: str
    typed: str
    code: int = 0


@dataclass(frozen=True)
class Edit:
    """An edit of the project: `before` stands once in `file`, and becomes `after`. `says`: why it is made."""

    says: str
    file: str
    before: str
    after: str


Step = Command | Edit


@dataclass(frozen=True)
class Story:
    """Steps that are played in order in a new folder, whose `.env` has these settings. `opening` says what will be seen."""

    name: str
    opening: str
    settings: Mapping[str, str]
    steps: Sequence[Step]
