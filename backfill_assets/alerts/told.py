"""What was told about the incidents of a lake, through which URL: `_alerts/told.json`.

The document is replaced as a whole, under the lock of the alerts. It has no URL, only hashes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import scrypt

from pydantic import TypeAdapter

from backfill_assets.alerts.incidents import Incident
from backfill_assets.errors import first_of, named
from backfill_assets.lake.storage import ALERTS, Documents

_DOCUMENT = "told.json"
# Further incidents and names are counted.
_SHOWN = 20


@dataclass(frozen=True)
class Told:
    """The incidents of the last look, and what was told last, by the hash of a URL."""

    incidents: tuple[Incident, ...] = ()
    urls: Mapping[str, tuple[Incident, ...]] = field(default_factory=dict)

    def after(
        self, found: Iterable[Incident], unknown: set[str], now: datetime | None = None
    ) -> "Told":
        """The same after another look, at the time `now`.

        Incidents that were seen before keep their time. Those of `unknown` subjects stay.
        """
        before = {incident.key: incident for incident in self.incidents}
        present = {}
        for incident in found:
            seen = before.get(incident.key, incident).since or now
            present[incident.key] = replace(incident, since=incident.since or seen)
        stay = {key: incident for key, incident in before.items() if incident.subject in unknown}
        return replace(self, incidents=tuple({**present, **stay}.values()))


_TOLD = TypeAdapter(Told)


def read_told(root: str) -> Told:
    """What was told. Nothing, if the document is missing or broken."""
    try:
        return _TOLD.validate_json(Documents(f"{root}/{ALERTS}").read(_DOCUMENT))
    except (FileNotFoundError, ValueError):
        return Told()


def write_told(root: str, told: Told) -> None:
    """Replace the document. Raises OSError if it cannot be written."""
    Documents(f"{root}/{ALERTS}").write(_DOCUMENT, _TOLD.dump_json(told))


def hash_of(url: str) -> str:
    """A hash of a URL. It is slow, so that a password in the URL cannot be guessed."""
    return scrypt(url.encode(), salt=b"backfill alerts", n=2**14, r=8, p=1, dklen=8).hex()


News = list[tuple[str, Incident]]


def news(present: Iterable[Incident], told: Iterable[Incident]) -> News:
    """The incidents that are new, changed or over since something was told, each with that word."""
    now = {incident.key: incident for incident in present}
    before = {incident.key: incident for incident in told}
    return [
        *(
            ("Changed" if key in before else "New", incident)
            for key, incident in now.items()
            if before.get(key) != incident
        ),
        *(("Over", i) for key, i in before.items() if key not in now and i.commands),
    ]


def title(found: News, project: str) -> str:
    """The title of a message: how many incidents are new, changed or over."""
    counts = Counter(word.lower() for word, _ in found)
    return f"backfill: {', '.join(f'{n} {word}' for word, n in counts.items())} ({project})"


def body(found: News, lake: str) -> str:
    """The text of a message, without markup."""
    parts = [f"{word}: " + "\n".join(incident_lines(incident, word)) for word, incident in found]
    return "\n\n".join([*first_of(parts, _SHOWN), f"Lake {lake}. `backfill alerts` lists all."])


def incident_lines(incident: Incident, word: str = "") -> Iterator[str]:
    """Say what happened, since when, who is affected, and what to type unless it is over."""
    yield incident.what
    if incident.since:
        yield f"Since: {incident.since:%Y-%m-%d %H:%M} UTC"
    if word == "Over":
        return
    if incident.affected:
        yield f"Affected: {named(incident.affected, _SHOWN)}"
    yield from (f"Type: {command}" for command in incident.commands)
