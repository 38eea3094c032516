"""The tables of a project read each other: what a table was written with is replaced by the declared table of that name.

A project may declare another table under the name of one that was imported, as examples that read another version of their
features. What reads these was written with the imported ones; what it is made from, and waits for, is what is declared.
"""

from collections.abc import Sequence
from dataclasses import replace

from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import Read, Window


def as_declared(tables: Sequence[Table]) -> list[Table]:
    """`tables`, each reading those of them that bear the names of what it reads. ValueError for one that is then made from
    itself."""
    declared, made, within = {table.name: table for table in tables}, dict[str, Table](), list[str]()

    def of(table: Table) -> Table:
        table = declared.get(table.name, table)
        if table.name in within:
            raise ValueError(f"{table.name} is made from itself, by way of {', '.join(within[within.index(table.name) + 1 :])}")
        if table.name not in made:
            within.append(table.name)
            reads, compared_with = {name: read(each) for name, each in table.reads.items()}, [*map(of, table.compared_with)]
            replaced = [reads[name] is not each for name, each in table.reads.items()]
            replaced += [now is not before for now, before in zip(compared_with, table.compared_with, strict=True)]
            made[table.name] = replace(table, reads=reads, compared_with=compared_with) if any(replaced) else table
            within.pop()
        return made[table.name]

    def read(each: Read) -> Read:
        if not isinstance(each, Window) or each.table is None or (table := of(each.table)) is each.table:
            return each
        return replace(each, table=table)

    return [of(table) for table in tables]
