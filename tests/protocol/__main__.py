"""Search meetings of three actors, and of two with lost answers: `python -m tests.protocol`.

Meetings of two whose answers are not lost are parts of those of three.
"""

import sys
from itertools import product

from rich.console import Console

from tests.protocol.actors import Protocol
from tests.protocol.scenarios import meetings, search


def main() -> int:
    console = Console()
    total = 0
    for has_locks, has_lineage in product((True, False), repeat=2):
        protocol = Protocol(has_locks, has_lineage)
        lossy = [] if has_locks else [(actors, 1) for actors in meetings(2)]
        states = 0
        for actors, lost in [*lossy, *((actors, 0) for actors in meetings(3))]:
            found = search(protocol, actors, lost)
            states += found.states
            console.print(f"{', '.join(actors)}: {found}")
            if found.problem:
                return 1
        kind = "locks" if has_locks else "fences"
        console.print(f"{kind}, with lineage {has_lineage}: {states:,} states")
        total += states
    console.print(f"{total:,} states, no counterexample")
    return 0


if __name__ == "__main__":
    sys.exit(main())
