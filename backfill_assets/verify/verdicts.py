"""Verdicts in the lake: one file a verdict in `_verdicts/<plan>/`. The newest counts, and none is ever changed or deleted."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from backfill_assets.errors import UsageError
from backfill_assets.lake.documents import Documents
from backfill_assets.lake.locks import writing
from backfill_assets.lake.paths import Paths
from backfill_assets.verify.checklist import Verdict, contents, read

STAMP = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def keep(self, verdict: Verdict) -> Verdict:
        """Write a verdict, whole or not at all, as the newest of its plan, with what was accepted on the same versions before;
        the verdict as it is kept."""
        with writing(self.root, "_verdicts"):  # whoever accepts lines meanwhile does so of the one before, or of this one
            with suppress(UsageError):  # one that cannot be read is replaced
                if earlier := self.newest(verdict.plan):
                    verdict = verdict.with_acceptances_of(earlier)
            self._keep(verdict)
        return verdict

    def _keep(self, verdict: Verdict) -> None:
        """Write a verdict, whole or not at all, as the newest of its plan, also where another host's clock is ahead."""
        order = verdict.at.astimezone(UTC)
        for name in self._names(verdict.plan)[-1:]:
            last = datetime.strptime(name.partition("-")[0], STAMP).replace(tzinfo=UTC)
            order = max(order, last + timedelta(microseconds=1))
        name = f"{order:{STAMP}}-{secrets.token_hex(2)}.json"
        self._documents.write(f"{verdict.plan}/{name}", contents(verdict))

    def all(self, plan: str) -> list[Verdict]:
        """Every verdict on a plan, oldest first. UsageError for one that cannot be read."""
        return [self._read(plan, name) for name in self._names(plan)]

    def newest(self, plan: str) -> Verdict | None:
        """The verdict that counts; None if the plan was never verified. UsageError if it cannot be read."""
        names = self._names(plan)
        return self._read(plan, names[-1]) if names else None

    def accept(self, plan: str, names: Sequence[str], *, who: str, reason: str, at: datetime) -> Verdict:
        """Accept lines of the newest verdict, by name or by a pattern such as `drift raw/*`, all or none. The result is kept as
        the newest.

        UsageError, and nothing is kept, if there is no verdict or a line cannot be accepted.
        """
        with writing(self.root, "_verdicts"):  # of two people who accept at once, neither is lost
            verdict = self.newest(plan)
            if verdict is None:
                raise UsageError(f"Plan {plan} was not verified. Nothing was accepted. Type `backfill verify {plan}`.")
            for line in [line for name in names for line in verdict.named(name) or [name]]:
                verdict = verdict.accept(line, who=who, reason=reason, at=at)
            self._keep(verdict)
        return verdict

    def _names(self, plan: str) -> list[str]:
        return self._documents.names(plan)

    @cached_property
    def _documents(self) -> Documents:
        return Documents(Paths(self.root).verdicts)

    def _read(self, plan: str, name: str) -> Verdict:
        try:
            verdict = read(self._documents.read(f"{plan}/{name}"))
            if verdict.plan == plan:
                return verdict
        except (ValueError, KeyError, TypeError):
            pass
        raise UsageError(
            f"{Paths(self.root).verdicts}/{plan}/{name} cannot be read as a verdict on plan {plan}. Nothing was written. Type "
            f"`backfill verify {plan}` again."
        )
