"""Whatever happens and whatever fails: after a message, its receiver knows what is open."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.alerts import post, send
from backfill_assets.alerts.incidents import Incident
from backfill_assets.alerts.told import (
    News,
    Told,
    body,
    hash_of,
    news,
    read_told,
    title,
    write_told,
)
from backfill_assets.lake.backup import back_up, restore
from backfill_assets.settings import Settings
from tests.worlds.small_lake import CALENDAR, A, copy_of, released_lake
from tests.worlds.tables import workspace_of

AT = datetime(2026, 1, 1, 3, 12, tzinfo=UTC)
SUBJECTS = ("a", "b", "c")
URLS = ("json://one", "json://two")
LINE = re.compile(r"^(New|Changed|Over): (\w) (\d)$", re.MULTILINE)


def incident(subject: str, form: int = 0, *, is_news: bool = False) -> Incident:
    commands = () if is_news else (f"backfill show {subject}",)
    return Incident("plan", subject, f"{subject} {form}", ("raw/b",), commands)


# One look: the form of each open incident, the subjects that are unknown, and the URLs that fail.
LOOKS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(SUBJECTS), st.integers(0, 2)),
        st.sets(st.sampled_from(SUBJECTS)),
        st.sets(st.sampled_from((0, 1))),
    ),
    max_size=8,
)


@given(looks=LOOKS)
def test_after_a_message_its_receiver_knows_exactly_what_is_open(looks):
    known: list[dict[str, str]] = [{} for _ in URLS]
    failing: set[int] = set()
    seen: dict[str, int] = {}
    before: dict[str, int] = {}

    def deliver(settings: Settings, texts: Mapping[str, tuple[str, str]]) -> dict[str, int]:
        outcomes = {}
        for name, (_, text) in texts.items():
            n = int(name.split()[1]) - 1
            outcomes[name] = post.FAILED if n in failing else post.SENT
            for word, subject, form in LINE.findall(text) if n not in failing else ():
                assert (word == "New") == (subject not in known[n])
                assert word != "Changed" or known[n][subject] != form
                known[n][subject] = form
                if word == "Over":
                    del known[n][subject]
        return outcomes

    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        workspace = workspace_of([A], CALENDAR, str(Path(root) / "lake"))
        settings = Settings(alerts=" ".join(URLS))  # type: ignore[arg-type]
        workspace = replace(workspace, settings=settings)
        patch.setattr(send, "send", deliver)
        patch.setattr(send, "hash_of", str)
        for number, (found, unknown, failing) in enumerate(looks):
            look = [incident(*each) for each in found.items()], unknown
            patch.setattr(send, "look_for_incidents", lambda *_, look=look: look)
            outcomes = send.tell(workspace, AT + timedelta(minutes=number))
            before = seen
            seen = found | {s: form for s, form in before.items() if s in unknown}
            twice = {subject: str(form) for subject, form in seen.items() if subject in before}
            for n in range(len(URLS)):
                name = f"URL {n + 1} (json)"
                assert outcomes.get(name) != post.SENT or known[n] == twice
                assert name in outcomes or known[n] == twice
            # The same look again has nothing to say to those who heard it.
            is_known = twice == {subject: str(form) for subject, form in seen.items()}
            again = send.tell(workspace, AT) if is_known else {}
            assert {int(name.split()[1]) - 1 for name in again} <= failing


def test_an_incident_keeps_the_time_at_which_it_was_first_seen(tmp_path, monkeypatch):
    workspace = workspace_of([A], CALENDAR, str(tmp_path))
    for minutes in range(3):
        monkeypatch.setattr(send, "look_for_incidents", lambda *_: ([incident("a")], set()))
        send.tell(workspace, AT + timedelta(minutes=minutes))
    (told,) = read_told(str(tmp_path)).incidents
    assert told.since == AT


def test_news_are_told_once_and_are_never_over():
    done = incident("a", is_news=True)
    assert news([done], []) == [("New", done)]
    assert news([done], [done]) == news([], [done]) == []


def test_a_document_that_is_broken_counts_as_nothing_told(tmp_path):
    (tmp_path / "_alerts").mkdir()
    (tmp_path / "_alerts" / "told.json").write_bytes(b'{"incidents": [')
    assert read_told(str(tmp_path)) == read_told(str(tmp_path / "none"))


def test_a_message_can_be_understood_at_night(golden):
    failed = Incident(
        "failed",
        "staging/outages",
        "staging/outages: 3 days failed (2019-08-15..2019-08-17): no_nulls(cents): 4 rows",
        ("features/region_daily", "dashboard"),
        ("backfill status --why staging/outages 2019-08-15",),
        AT,
    )
    found: News = [("New", failed), ("Changed", failed), ("Over", failed)]
    golden([title(found, "shop"), "", body(found, "/data/lake")])


def test_a_message_about_many_incidents_names_twenty_and_counts_the_rest():
    found: News = [("New", replace(incident(f"t{n}"), since=AT)) for n in range(50)]
    assert body(found, "lake").count("New: ") == 20
    assert "and 30 more" in body(found, "lake")


def test_the_hash_of_a_url_tells_urls_apart_and_does_not_contain_them():
    assert hash_of("json://a") == hash_of("json://a") != hash_of("json://b")
    assert re.fullmatch("[0-9a-f]{16}", hash_of("json://a"))


def test_a_restored_lake_tells_its_incidents_again(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    root = str(lake.root)
    write_told(root, Told((replace(incident("a"), since=AT),)))
    back_up(root, str(tmp_path / "copies"))
    restored = str(tmp_path / "restored")
    restore(str(tmp_path / "copies"), restored, 0, "ada")
    assert read_told(root) != Told()
    assert read_told(restored) == Told()
