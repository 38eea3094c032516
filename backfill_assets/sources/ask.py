"""Asking a service for the days of which no answer is kept, within its budget, and keeping what it says.

One process asks at a time, where the lake is on a local disk; another that wants the same days finds them kept. Answers are
kept request by request, so that a process that is killed has lost one at most, and days that are there do not wait for others.
What cannot be had now is left to a later run: a used-up budget, or a service that is down, is no fault of a day. Where a
request for several days is refused, the first, the last and those between are asked for apart: a service may not have them all.
"""

from collections.abc import Sequence
from datetime import date

from backfill_assets.calendar import consecutive
from backfill_assets.errors import Awaited, Conflict, SourceError
from backfill_assets.lake.locks import writing
from backfill_assets.lake.paths import ANSWERS
from backfill_assets.sources.answers import Answers
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.asking import Asking, Patience, Refused
from backfill_assets.sources.http import HttpSource

# If so many requests are refused and nothing was answered between them, it is not the days.
REFUSED_FIRST = 4


def ask(
    source: HttpSource, area: LandingArea, days: Sequence[date], patience: Patience | None = None
) -> dict[date, SourceError]:
    """Ask for those of `days` that have not all their answers. Of each that still has not, why: Awaited, or a wrong answer."""
    answers, why = Answers(area, source.name), dict[date, SourceError]()
    missing = [day for day in days if day not in answers.stored(source.queries())]
    batches = [span[n : n + source.at_once] for span in consecutive(missing) for n in range(0, len(span), source.at_once)]
    left, refusals = [(query, batch) for batch in batches for query in source.queries()], 0
    with Asking(source, area, patience or Patience()) as asking:
        while left:
            query, batch = left.pop(0)
            try:
                with writing(area.lake, f"{ANSWERS}/{source.name}"):
                    unanswered = [day for day in batch if day not in answers.stored([query])]
                    said = asking(query, unanswered) if unanswered else {}
                    for day, rows in said.items():
                        answers.keep(query, day, rows)
            except (Awaited, Conflict) as error:  # nor can anything else be asked for now
                waiting = [day for day in missing if day not in answers.stored(source.queries())]
                return {**dict.fromkeys(waiting, Awaited(str(error))), **why}
            except SourceError as error:
                refusals += 1
                if isinstance(error, Refused) and len(unanswered) > 1 and refusals < REFUSED_FIRST:
                    left[:0] = [(query, part) for part in (unanswered[:1], unanswered[-1:], unanswered[1:-1]) if part]
                else:
                    why |= dict.fromkeys(unanswered, error)
            else:
                refusals = 0 if said else refusals
                why |= {
                    d: Awaited(f"{source.name} has nothing of {d} yet") for d in unanswered if d not in said and d not in why
                }
    return why
