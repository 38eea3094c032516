"""The component `backfill_assets.DailyTables`: the tables of a project, in a `defs.yaml`."""

from importlib import import_module

from dagster import Component, ComponentLoadContext, Definitions, Model, Resolvable

from backfill_assets import definitions
from backfill_assets.calendar import as_day
from backfill_assets.errors import ProjectError, UsageError
from backfill_assets.tables.declaration import Table


class DailyTables(Component, Model, Resolvable):
    """The tables of a project: all tables in a Python module, and all that these read.

    `module` is imported, and must not call `definitions` itself. A project has one such component.
    `first_day`, `last_day` and `zone` are given to `definitions`. Days are written as YYYY-MM-DD.
    """

    module: str
    first_day: str | None = None
    last_day: str | None = None
    zone: str = ""

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """The tables as Dagster's definitions. Raises ProjectError for wrong attributes."""
        try:
            module = import_module(self.module)
        except ModuleNotFoundError as error:
            if not f"{self.module}.".startswith(f"{error.name}."):
                raise
            raise _wrong(context, f"there is no module {self.module}", MODULE) from None
        values = vars(module).values()
        tables = {
            id(table): table
            for value in values
            if isinstance(value, Table)
            for table in value.ancestors()
        }
        if not tables:
            raise _wrong(context, f"the module {self.module} has no tables", MODULE)
        if any(isinstance(value, Definitions) for value in values):
            raise _wrong(
                context, f"the module {self.module} calls `definitions`", "Remove that call."
            )
        try:
            first, last = (as_day(day) if day else None for day in (self.first_day, self.last_day))
        except UsageError as error:
            raise _wrong(context, error.what.rstrip("."), error.next_step) from None
        try:
            return definitions(
                tables=[*tables.values()], first_day=first, last_day=last, zone=self.zone
            )
        except ValueError as error:
            next_step = f"Correct it there, or in the module {self.module}."
            raise _wrong(context, str(error), next_step) from None


MODULE = "Write at `module` the module with your functions under @table, such as weather.tables."


def _wrong(context: ComponentLoadContext, what: str, next_step: str) -> ProjectError:
    return ProjectError(
        f"The component in {context.path} is wrong: {what}.",
        f"{context.path}/defs.yaml",
        unchanged="Nothing was done.",
        next_step=next_step,
    )
