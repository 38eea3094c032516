"""Search all meetings of two actors with lost answers, and of three: `python -m tests.protocol`."""

import sys

from rich.console import Console

from tests.protocol.actors import Protocol
from tests.protocol.scenarios import meetings, search

# How many actors meet, and how many answers of the store may be lost.
SEARCHES = ((2, 1), (3, 0))


def main() -> int:
    console = Console()
    states = 0
    for size, lost in SEARCHES:
        for has_locks in (True, False):
            for has_lineage in (True, False):
                protocol = Protocol(has_locks, has_lineage)
                for actors in meetings(size):
                    found = search(protocol, actors, 0 if has_locks else lost)
                    states += found.states
                    console.print(
                        f"{'locks' if has_locks else 'fences'} {', '.join(actors)}: {found}"
                    )
                    if found.problem:
                        return 1
    console.print(f"{states} states, no counterexample")
    return 0


if __name__ == "__main__":
    sys.exit(main())
