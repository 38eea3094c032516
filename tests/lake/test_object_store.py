"""A lake in an S3 store: its settings, its conditional writes, and its faults. On versitygw."""

import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any
from uuid import uuid4

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import MemoryStore

from backfill_assets.cli import doctor
from backfill_assets.errors import ServiceUnavailable, SettingsError, TableUnreadable
from backfill_assets.lake.data_files import write_table
from backfill_assets.lake.delta import has_no_log, open_table, table_to_write
from backfill_assets.lake.ledger import Build, Ledger, to_arrow
from backfill_assets.lake.numbered_documents import NumberedDocuments
from backfill_assets.lake.object_store import (
    delta_options,
    put_new,
    read_object,
    refuse_unconditional,
    replace,
    s3_settings,
    s3a_conf,
    store_at,
    why,
)
from backfill_assets.lake.record_log import RecordLog, newest_log
from backfill_assets.lake.record_table import COMPACT_EVERY
from backfill_assets.lake.spark.jars import S3_PACKAGES
from backfill_assets.lake.spark.reading import copied
from backfill_assets.lake.spark.session import session_conf
from backfill_assets.lake.storage import FORM, FORM_MARK
from backfill_assets.settings import read_settings
from backfill_assets.workspace import open_workspace
from tests.worlds.faulty_s3 import Fault, Rule, faulty_s3
from tests.worlds.s3 import BUCKET, KEY, S3, SECRET, s3_server

pytestmark = pytest.mark.long

# A store that does not know conditional writes.
UNCONDITIONAL = Rule(Fault.UNCONDITIONAL, times=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def place(server, monkeypatch) -> str:
    """A new lake, with the settings of its clients."""
    use(server, monkeypatch)
    return server.place(f"lake-{uuid4().hex[:12]}")


def use(server: S3, monkeypatch: pytest.MonkeyPatch, endpoint: str = "", **other: str) -> None:
    for name, value in (server.environment(endpoint) | other).items():
        monkeypatch.setenv(name, value)


def test_a_profile_gives_all_readers_keys_region_and_endpoint(server, tmp_path, monkeypatch):
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    (tmp_path / "config").write_text(
        f"[profile team]\nregion = us-east-1\nendpoint_url = {server.endpoint}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "team")
    monkeypatch.delenv("AWS_REGION", raising=False)
    place = server.place("of-a-profile")
    refuse_unconditional(place)
    assert Ledger(place).rows(["day"]).num_rows == 0
    conf = s3a_conf()
    assert conf["spark.hadoop.fs.s3a.endpoint"] == server.endpoint
    assert conf["spark.hadoop.fs.s3a.aws.credentials.provider"].endswith(
        ".ProfileAWSCredentialsProvider"
    )
    assert SECRET not in " ".join(conf.values())


def test_variables_come_before_the_profile(tmp_path):
    keys = "aws_access_key_id = p\naws_secret_access_key = p\n"
    (tmp_path / "credentials").write_text(f"[default]\n{keys}aws_session_token = t\n")
    profile = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    own = {"AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1"}
    assert (s3_settings(profile).key, s3_settings(profile).token) == ("p", "t")
    settings = s3_settings(profile | own)
    assert (settings.key, settings.secret, settings.token) == ("e", "s", "")
    assert (settings.region, settings.from_profile) == ("eu-west-1", False)


@pytest.mark.parametrize(
    ("variables", "by_host", "is_plain_http"),
    [
        ({}, True, False),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, False, True),
        ({"AWS_ENDPOINT_URL_S3": "https://s3.example.com/"}, False, False),
        (
            {
                "AWS_ENDPOINT_URL": "https://example.com",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
            },
            True,
            False,
        ),
    ],
    ids=["AWS itself", "plain HTTP", "S3 only", "by the name of the host"],
)
def test_the_endpoint_decides_how_a_bucket_is_named(variables, by_host, is_plain_http):
    settings = s3_settings(variables)
    assert (settings.by_host, settings.is_plain_http) == (by_host, is_plain_http)


@pytest.mark.parametrize("name", ["lake", "landing"])
def test_spark_gets_the_jars_and_settings_of_s3_only_if_a_place_is_there(name):
    place: Any = {name: f"s3://{BUCKET}/x"}
    conf = session_conf(read_settings(**place))
    assert conf["spark.hadoop.fs.s3.impl"].endswith("S3AFileSystem")
    assert set(S3_PACKAGES) <= set(conf["spark.jars.packages"].split(","))
    other = session_conf(read_settings())
    assert not any("s3" in setting for setting in other)
    assert not set(S3_PACKAGES) & set(other["spark.jars.packages"].split(","))


def test_the_committers_of_s3a_may_be_chosen():
    committer = {
        "spark.hadoop.fs.s3a.committer.name": "magic",
        "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": "x.S3ACommitterFactory",
        "spark.sql.sources.commitProtocolClass": "x.PathOutputCommitProtocol",
        "spark.sql.parquet.output.committer.class": "x.BindingParquetOutputCommitter",
    }
    conf = session_conf(read_settings(spark_conf=committer))
    assert {name: conf[name] for name in committer} == committer


def test_an_object_is_written_once_and_replaced_only_as_it_was_read(place):
    store = store_at(place)
    first = put_new(store, "a", b"1")
    assert first
    assert put_new(store, "a", b"2") is None
    second = replace(store, "a", b"3", first)
    assert second
    assert replace(store, "a", b"4", first) is None
    assert replace(store, "never", b"4", first) is None
    assert read_object(store, "a")[:2] == (b"3", second)  # type: ignore[index]
    assert read_object(store, "never") is None


def test_a_write_whose_answer_was_lost_counts_as_written(server, place, monkeypatch):
    lost = Rule(Fault.LOSE, "PUT", "/a")
    with faulty_s3(server.endpoint, lost) as proxy:
        use(server, monkeypatch, proxy.endpoint)
        store = store_at(place)
        first = put_new(store, "a", b"1")
        assert first
        assert proxy.set(lost) == [1]
        assert replace(store, "a", b"2", first)
        assert proxy.set() == [1]
        assert read_object(store, "a")[0] == b"2"  # type: ignore[index]


def test_a_write_that_a_store_refused_without_an_object_is_tried_again(monkeypatch):
    """S3 answers 409 to conditional writes at the same time, and may carry out none of them."""
    store = MemoryStore()
    put = obstore.put

    def refused(*_, **__):
        raise AlreadyExistsError("409 ConditionalRequestConflict")

    answers = iter([refused, refused, put])

    monkeypatch.setattr(obstore, "put", lambda *a, **options: next(answers)(*a, **options))
    assert put_new(store, "n", b"mine")
    written = read_object(store, "n")
    assert written is not None
    assert written.contents == b"mine"
    monkeypatch.setattr(obstore, "put", refused)
    assert put_new(store, "n", b"other") is None
    with pytest.raises(GenericError):
        put_new(store, "another", b"mine")


def test_a_probe_leaves_nothing(server, place):
    refuse_unconditional(place)
    assert not list((server.folder / BUCKET / place.rpartition("/")[2]).rglob("_probe/*"))


def test_a_store_that_ignores_conditions_is_refused(server, place, monkeypatch, golden):
    with faulty_s3(server.endpoint, UNCONDITIONAL) as proxy:
        use(server, monkeypatch, proxy.endpoint)
        with pytest.raises(ServiceUnavailable) as refused:
            refuse_unconditional(place)
    golden(str(refused.value), PLACE=place)


WRONG = [
    pytest.param({"AWS_ACCESS_KEY_ID": "unknown"}, "", "No user exists", id="an unknown key"),
    pytest.param(
        {"AWS_SECRET_ACCESS_KEY": "wrong"}, "", "SignatureDoesNotMatch", id="a wrong secret"
    ),
    pytest.param(
        {"AWS_SESSION_TOKEN": "expired"}, "", "InvalidToken", id="a token that is not valid"
    ),
    pytest.param({"AWS_REGION": "eu-central-1"}, "", "eu-central-1", id="another region"),
    pytest.param({}, "s3://no-such-bucket/lake", "NoSuchBucket", id="a missing bucket"),
    pytest.param(
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        "",
        "http://127.0.0.1:9 does not answer",
        id="a port where nothing listens",
    ),
]


def test_the_doctor_tries_conditional_writes_only_if_it_is_asked_to(
    server, place, monkeypatch, golden
):
    settings = read_settings(lake=place)
    with faulty_s3(server.endpoint, UNCONDITIONAL) as proxy:
        use(server, monkeypatch, proxy.endpoint)
        assert doctor.lake(settings).level == "ok"
        refused = doctor.lake(settings, probe=True)
    assert refused.level == "FAIL"
    golden(refused.remedy)
    use(server, monkeypatch)
    assert doctor.lake(settings, probe=True).level == "ok"


@pytest.mark.parametrize(("variables", "other_place", "reason"), WRONG)
def test_wrong_credentials_and_a_missing_bucket_are_no_empty_lake(
    server, place, monkeypatch, variables, other_place, reason
):
    use(server, monkeypatch, **variables)
    for refuses in (has_no_log, table_to_write, refuse_unconditional):
        with pytest.raises(ServiceUnavailable) as refused:
            refuses(other_place or place)
        assert reason in refused.value.what
        assert "\n" not in refused.value.what


def test_a_server_that_is_no_store_is_named_with_its_answer(golden):
    error = OSError(
        "GET http://proxy:80/tests in 3 ms - Server returned non-2xx status code\n"
        "  \x1b[31m↳\x1b[0m 404 Not Found\n"
    )
    golden(why(error))


@pytest.mark.parametrize("endpoint", ["127.0.0.1:7070", "s3.example.com", "http://"])
def test_an_endpoint_that_is_no_web_address_is_refused_first(monkeypatch, endpoint):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(SettingsError) as refused:
        open_workspace(only_reading=True, lake=f"s3://{BUCKET}/lake")
    assert endpoint in refused.value.what


def test_an_open_table_costs_one_request_until_another_commits(server, place):
    folder = f"{place}/numbers"
    with server.counting() as requests:
        assert open_table(folder) is None
    assert requests.total() == 1
    write_deltalake(folder, pa.table({"n": [1]}), storage_options=delta_options(folder))
    first = open_table(folder)
    with server.counting() as requests:
        assert open_table(folder) is first
    assert requests.total() == 1
    write_deltalake(
        folder, pa.table({"n": [2]}), mode="append", storage_options=delta_options(folder)
    )
    second = open_table(folder)
    assert first
    assert second
    assert (first.version(), second.version()) == (0, 1)
    with server.counting() as requests:
        assert open_table(folder, 0) is first
        assert open_table(folder) is second
    assert requests.total() == 2


def test_a_newer_lake_is_refused_by_the_requests_that_are_made_anyway(place, server):
    releases = NumberedDocuments(place, "_releases")
    for number in (1, 2):
        assert releases.add(number, f"{number}")
    with server.counting() as before:
        assert releases.newest()
    obstore.put(store_at(place), f"_releases/{FORM_MARK}{FORM + 1}", b"")
    with server.counting() as after, pytest.raises(TableUnreadable, match="newer version"):
        releases.newest()
    assert after.total() == before.total()


def test_a_recreated_table_is_not_taken_for_the_one_that_is_kept(place):
    folder = f"{place}/numbers"
    for number in (1, 2):
        write_deltalake(folder, pa.table({"n": [number]}), storage_options=delta_options(folder))
        table = open_table(folder)
        assert table
        assert table.to_pyarrow_table()["n"].to_pylist() == [number]
        names = [entry["path"] for chunk in obstore.list(store_at(folder)) for entry in chunk]
        obstore.delete(store_at(folder), names)
        assert open_table(folder) is None


def test_a_kept_ledger_is_advanced_by_the_commits_that_follow(place, server):
    ledger = Ledger(place)
    for n in range(COMPACT_EVERY):
        ledger.append([build(n)])
    with server.counting() as requests:
        ledger.append([build(20)])
        assert ledger.files().rows(["run"]).num_rows == COMPACT_EVERY + 1
    # One listing for the writer and one for the reader; the rest is the commit and its rows.
    assert requests.total() <= 14, requests
    # Another process commits, and compacts the files.
    for n in range(30, 30 + COMPACT_EVERY):
        append_elsewhere(ledger, n)
        assert ledger.has_committed(f"run {n}")
    kept = newest_log(ledger.path)
    opened = RecordLog.of(opened_elsewhere(ledger))
    assert kept
    assert (kept.version, by_path(kept)) == (opened.version, by_path(opened))
    with server.counting() as requests:
        ledger.files()
    assert requests.total() == 1


def test_a_ledger_that_was_made_again_is_opened_again(place, server):
    ledger = Ledger(place)
    ledger.append([build(0)])
    assert ledger.has_committed("run 0")
    shutil.rmtree(server.folder / BUCKET / ledger.path.removeprefix(f"s3://{BUCKET}/"))
    assert ledger.rows(["run"]).num_rows == 0
    ledger.records.create()
    for n in (1, 2):
        append_elsewhere(ledger, n)
    assert sorted(ledger.rows(["run"])["run"].to_pylist()) == ["run 1", "run 2"]


def build(n: int) -> Build:
    return Build("raw/t", date(2020, 1, 1) + timedelta(n), "accepted", f"run {n}", "code")


def append_elsewhere(ledger: Ledger, n: int) -> None:
    """Append as another process does."""
    table = opened_elsewhere(ledger)
    ledger.records.append(table, to_arrow([build(n)]))
    ledger.records.compact(table)


def opened_elsewhere(ledger: Ledger) -> DeltaTable:
    return DeltaTable(ledger.path, storage_options=delta_options(ledger.path))


def by_path(log: RecordLog) -> list[Any]:
    return sorted(log.files, key=lambda facts: facts["path"])


def test_the_newest_of_many_documents_costs_two_requests_and_a_number_is_taken_once(
    server, place, golden
):
    documents = NumberedDocuments(place, "_releases")
    assert all(documents.add(number, str(number)) for number in range(1, 104))
    with server.counting() as requests:
        newest = documents.newest()
    assert (newest and newest.number, requests.total()) == (103, 2)
    assert not documents.add(103, "another")
    write_deltalake(documents.path, pa.table({"n": [1]}), storage_options=delta_options(place))
    with pytest.raises(TableUnreadable) as refused:
        documents.newest()
    golden(str(refused.value), PLACE=place)


def test_small_slices_are_copied_for_executors_on_this_machine(place, server, tmp_path):
    folder = f"{place}/raw/t"
    days = [date(2020, 1, 1), date(2020, 1, 2)]
    files = write_table(pa.table({"day": days, "x": [1, 2]}), folder, "day")
    with server.counting() as requests:
        copies = copied(folder, files, tmp_path)
        assert copied(folder, files, tmp_path) == copies
    assert requests == {"GetObject rows 200": 2}
    read = [pq.read_table(f"{copies.removeprefix('file://')}/{file.path}") for file in files]
    assert [table["x"].to_pylist() for table in read] == [[1], [2]]
    (server.folder / BUCKET / folder.removeprefix(f"s3://{BUCKET}/") / files[0].path).unlink()
    # Spark says which file is gone.
    assert copied(folder, files, tmp_path / "other") == folder
