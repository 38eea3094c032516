"""What tests deliver: the days of the sample by number, and changes as the source spells them."""

from datetime import date, timedelta
from typing import Any

FIRST = date(2019, 8, 15)


def day(number: int) -> date:
    """The calendar's day `number`, counted from 0."""
    return FIRST + timedelta(days=number)


def days(*numbers: int) -> list[date]:
    return [day(number) for number in numbers]


def change(outage: str = "1", **fields: Any) -> dict[str, Any]:
    """A delivered change of an outage, as the source spells it; a field given as None is left out."""
    known = {
        "outageNumber": outage, "outageStartTime": "1565870400", "lastUpdateTime": "1565870500", "cause": "Unknown",
        "crewCurrentStatus": "on its way", "estCustAffected": "5", "hazardFlag": "0", "latitude": "38.5", "longitude": "-122.5",
        "regionName": "Napa", "n_devices": 1, "_op": "I", "_captured_at": "2019-08-15T12:01:00Z", "_commit": "abc",
    }  # fmt: skip
    return {name: value for name, value in (known | fields).items() if value is not None}


def arriving(at: int, *numbers: int, began: int, **fields):
    """Changes that arrive on one day, of outages that began on another."""
    epoch = 1565827200 + began * 86400 + 3600
    seen = f"{day(at)}T20:00:00Z"
    return [change(str(100 * began + n), outageStartTime=str(epoch), _captured_at=seen, **fields) for n in numbers]
