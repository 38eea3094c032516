import os
from typing import Any

import pytest

from backfill_assets.errors import SettingsError
from backfill_assets.settings import EXAMPLES, Settings, read_settings
from backfill_assets.user import user_name


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            {"days_per_run": "many"},
            id="a number that is none",
        ),
        pytest.param(
            {"first_day": "2019-9-1"},
            id="a day without its zeros",
        ),
        pytest.param(
            {"first_day": "2019-10-01", "last_day": "2019-09-01"},
            id="a calendar that ends before it begins",
        ),
        pytest.param(
            {"spark_master": "local[2]", "spark_remote": "sc://host:1"},
            id="a driver of its own and a server's",
        ),
        pytest.param(
            {"spark_remote": "host:15002"},
            id="a server without its scheme",
        ),
        pytest.param(
            {"spark_remote": "sc://host:15002/;use_ssl=true;token=secret"},
            id="a token where it would be shown",
        ),
        pytest.param(
            {"spark_remote": "sc://ada:secret@host:15002/;use_ssl=true;Token=secret"},
            id="a password where it would be shown",
        ),
        pytest.param(
            {"spark_jars": "/nowhere/delta.jar"},
            id="a jar that is not there",
        ),
    ],
)
def test_a_wrong_value_names_itself_what_is_allowed_and_an_example(given, golden):
    with pytest.raises(SettingsError) as refused:
        read_settings(**given)
    golden(refused.value.what)


ELSEWHERE = [
    pytest.param({"spark_master": "spark://host:7077"}, id="a master on another host"),
    pytest.param({"spark_master": "spark://127.0.0.1:7077,host:7077"}, id="a second master"),
    pytest.param({"spark_master": "yarn"}, id="a cluster without an address"),
    pytest.param(
        {"spark_conf": {"spark.master": "spark://host:7077"}, "spark_master": "local[*]"},
        id="a master among Spark's settings",
    ),
    pytest.param({"spark_remote": "sc://host:15002/;use_ssl=true"}, id="a Connect server"),
]
HERE = [
    pytest.param({"spark_master": "local[2]"}, id="a driver"),
    pytest.param({"spark_master": "local-cluster[2,1,1024]"}, id="a driver with executors"),
    pytest.param({"spark_master": "spark://127.0.0.1:7077"}, id="a master here"),
    pytest.param({"spark_remote": "sc://localhost:15002/;use_ssl=false"}, id="a Connect server"),
    pytest.param({"spark_remote": "sc://[::1]:15002"}, id="a Connect server over IPv6"),
]
STORE: dict[str, Any] = {"lake": "s3a://bucket/lake", "landing": "s3://bucket/landing"}


@pytest.mark.parametrize("given", ELSEWHERE)
def test_executors_on_other_hosts_need_a_disk_that_all_hosts_share(given: dict[str, Any]):
    for place in ("lake", "landing"):
        with pytest.raises(SettingsError, match=f"BACKFILL_{place.upper()} is a folder") as refused:
            read_settings(**(STORE | {place: ""} | given))
        assert "BACKFILL_SHARED_DISK=1" in refused.value.what
    assert read_settings(**(STORE | given)).lake == STORE["lake"]
    assert read_settings(shared_disk="1", **given).shared_disk


@pytest.mark.parametrize("given", HERE)
def test_executors_on_this_machine_may_use_its_disk(given):
    assert not read_settings(lake="", landing="", **given).shared_disk


@pytest.mark.parametrize("where", ["the environment", ".env"])
def test_a_misspelt_setting_is_refused_with_the_one_that_is_meant(where, tmp_path, monkeypatch):
    if where == ".env":
        (tmp_path / ".env").write_text("BACKFILL_FISRT_DAY=2019-08-15\nOTHER=1\n")
    else:
        monkeypatch.setenv("BACKFILL_FISRT_DAY", "2019-08-15")
    refused = (
        "^BACKFILL_FISRT_DAY is not a setting. Nothing was done. Did you mean BACKFILL_FIRST_DAY"
    )
    with pytest.raises(SettingsError, match=refused):
        read_settings(tmp_path)


def test_without_a_value_every_place_lies_under_home(tmp_path):
    found = read_settings(home=tmp_path, lake="", landing="")
    assert (found.lake, found.landing, found.dagster_home) == (
        str(tmp_path / "lake"), str(tmp_path / "landing"), tmp_path / "dagster",
    )  # fmt: skip


def test_places_are_absolute_paths_without_dots_wherever_a_command_is_typed(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").write_text('[tool.backfill]\nproject = "shop"\n')
    (tmp_path / "project" / "below").mkdir()
    found = read_settings(
        tmp_path / "project" / "below", home="./home", lake="../x/../lake", landing="../deliveries/"
    )
    assert (found.home, found.lake, found.landing) == (
        tmp_path / "project" / "home", str(tmp_path / "lake"), str(tmp_path / "deliveries"),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["lake{1}", "la\tke", "a[b]%20", "a\\b"])
def test_a_lake_that_spark_could_not_read_is_refused(tmp_path, name, golden):
    with pytest.raises(SettingsError) as refused:
        read_settings(lake=str(tmp_path / name))
    golden(str(refused.value))


def test_a_lake_and_a_landing_area_may_be_in_an_object_store():
    assert read_settings(lake="s3a://bucket/lake").lake == "s3a://bucket/lake"
    assert read_settings(landing="gs://bucket/landing").landing == "gs://bucket/landing"
    assert read_settings(lake="s3://bucket/a lake/").lake == "s3://bucket/a lake"


@pytest.mark.parametrize("setting", ["lake", "landing"])
@pytest.mark.parametrize("name", ["lake?x", "lake#x", "a%20lake", "a//lake", "a/../lake", "./lake"])
def test_an_address_that_libraries_read_in_two_ways_is_refused(setting, name):
    given: Any = {setting: f"s3://bucket/{name}"}
    with pytest.raises(SettingsError, match=f"BACKFILL_{setting.upper()} is not allowed"):
        read_settings(**given)


@pytest.mark.parametrize("place", ["s3:bucket/lake", "s3:/bucket", "s3://", "s3:// b", "S3://b"])
def test_a_misspelt_address_of_a_store_is_no_folder(place):
    for setting in ("lake", "landing"):
        with pytest.raises(SettingsError, match=f"BACKFILL_{setting.upper()} is not allowed"):
            read_settings(**{setting: place})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        pytest.param(
            {"first_day": "in august"}, "BACKFILL_FIRST_DAY='in august'", id="the first day"
        ),
        pytest.param(
            {"last_day": "2019-13-01"}, "BACKFILL_LAST_DAY='2019-13-01'", id="the last day"
        ),
        pytest.param(
            {"project": "shop/tables.py"}, "BACKFILL_PROJECT='shop/tables.py'", id="the project"
        ),
        pytest.param({"days_per_run": 0}, "BACKFILL_DAYS_PER_RUN=0", id="the days of a run"),
        pytest.param({"spark_remote": "local[2]"}, "BACKFILL_SPARK_REMOTE", id="the engine"),
        pytest.param({"spark_jars": "/none.jar"}, "BACKFILL_SPARK_JARS='/none.jar'", id="the jars"),
        pytest.param(
            {"spark_conf": "memory=4g"}, "BACKFILL_SPARK_CONF", id="Spark's configuration"
        ),
        pytest.param({"dagster_url": "dagster:3000"}, "BACKFILL_DAGSTER_URL", id="the webserver"),
        pytest.param(
            {"allowed_hosts": "http://proxy/"},
            "BACKFILL_ALLOWED_HOSTS",
            id="a host with its scheme",
        ),
        pytest.param(
            {"service_urls": {"weather": "proxy/v1"}},
            "BACKFILL_SERVICE_URLS",
            id="a service without its scheme",
        ),
        pytest.param({"zone": "Europe/Berln"}, "BACKFILL_ZONE='Europe/Berln'", id="the zone"),
        pytest.param({"zone": "localtime"}, "BACKFILL_ZONE='localtime'", id="the machine's zone"),
        pytest.param(
            {"nightly_cron": "at night"},
            "BACKFILL_NIGHTLY_CRON='at night'",
            id="the hour of the nightly run",
        ),
        pytest.param(
            {"nightly_cron": "a b c d e"},
            "BACKFILL_NIGHTLY_CRON='a b c d e'",
            id="words that are no time",
        ),
        pytest.param(
            {"nightly_cron": "*/0 * * * *"},
            "BACKFILL_NIGHTLY_CRON='*/0 * * * *'",
            id="every no minutes",
        ),
        pytest.param(
            {"nightly_cron": "0 0 0 * *"},
            "BACKFILL_NIGHTLY_CRON='0 0 0 * *'",
            id="a day of the month that there is not",
        ),
        pytest.param(
            {"nightly_cron": "0 5 30 feb *"},
            "BACKFILL_NIGHTLY_CRON='0 5 30 feb *'",
            id="a day that never comes",
        ),
        pytest.param(
            {"nightly_cron": "0 5 31 4,6 *"},
            "BACKFILL_NIGHTLY_CRON='0 5 31 4,6 *'",
            id="in none of two months",
        ),
    ],
)
def test_every_setting_that_can_be_wrong_says_so_with_an_example(given, named):
    with pytest.raises(SettingsError) as refused:
        read_settings(**given)
    (name,) = given
    assert str(refused.value).startswith(f"{named} is not allowed: ")
    assert f", for example {EXAMPLES[name]}. Nothing was done." in str(refused.value)


@pytest.mark.parametrize(
    "cron",
    ["0 5 29 2 *", "0 5 31 4,5 *", "0 5 31 2 mon", "0 5 1,31 2 *", "0 5 */2 2 *", "0 5 31 2-3 *"],
)
def test_a_schedule_that_starts_some_day_is_taken(cron):
    assert read_settings(nightly_cron=cron).nightly_cron == cron


@pytest.mark.parametrize("price", ["inf", "nan", "-1"])
def test_a_price_is_a_number_of_which_there_may_be_a_sum(price, golden):
    with pytest.raises(SettingsError) as refused:
        read_settings(price_per_hour=price)
    golden(str(refused.value))


@pytest.mark.parametrize(
    ("line", "number"),
    [
        pytest.param("BACKFILL_HOME", 2, id="a name alone"),
        pytest.param("this sets nothing", 2, id="a sentence"),
        pytest.param('BACKFILL_LAKE="lake', 2, id="a quote that does not end"),
    ],
)
def test_a_line_of_env_that_sets_nothing_is_refused_and_its_text_is_not_shown(
    tmp_path, line, number
):
    """It would be passed over, and the command would work on the folder's own lake."""
    (tmp_path / "pyproject.toml").write_text("[tool.backfill]\n")
    (tmp_path / ".env").write_text(f"# the shop\n{line}\nBACKFILL_DAYS_PER_RUN=3\n")
    with pytest.raises(SettingsError) as refused:
        read_settings(tmp_path)
    said = (
        f"Line {number} of {tmp_path / '.env'} sets nothing. Nothing was done. Write NAME=value; "
    )
    assert str(refused.value).startswith(said)
    assert line not in str(refused.value)


def test_what_the_environment_says_is_refused_in_the_same_words(monkeypatch, golden):
    monkeypatch.setenv("BACKFILL_SPARK_CONF", "foo")
    with pytest.raises(SettingsError) as refused:
        read_settings()
    golden(refused.value.what)


def test_hosts_are_named_with_or_without_a_port():
    named = "dagster.example.com, 10.0.0.5:8080, [fd00::1]:80"
    assert read_settings(allowed_hosts=named).allowed_hosts == (
        "dagster.example.com",
        "10.0.0.5:8080",
        "[fd00::1]:80",
    )


def test_every_setting_has_an_example():
    assert set(EXAMPLES) == set(Settings.model_fields)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            {"dagster_url": "ada:S3CRET@dagster:3000"}, id="a webserver without its scheme"
        ),
        pytest.param({"dagster_url": "http://ada:S3#CRET@dagster:3000"}, id="a password with #"),
        pytest.param(
            {"dagster_url": "http://ada:S3CRET/x@dagster:3000"}, id="a password with a slash"
        ),
        pytest.param({"dagster_url": "http://ada:S3CRET@dagster:99999"}, id="a port that is none"),
        pytest.param(
            {"spark_remote": "host:15002/;token=S3CRET"}, id="an engine without its scheme"
        ),
        pytest.param(
            {"spark_conf": {"spark.hadoop.fs.s3a": {"secret.key": "S3CRET"}}},
            id="nested Spark settings",
        ),
        pytest.param(
            {"spark_conf": "spark.hadoop.fs.s3a.secret.key=S3CRET"},
            id="Spark settings that are no JSON",
        ),
        pytest.param(
            {"service_urls": {"weather": "weather.example.com?apikey=S3CRET"}},
            id="a service with its key",
        ),
        pytest.param(
            {"service_urls": "weather=https://example.com?apikey=S3CRET"},
            id="services that are no JSON",
        ),
        pytest.param({"allowed_hosts": "https://ada:S3CRET@proxy"}, id="a host with a password"),
        pytest.param({"lake": "s3://AKIA:S3CRET@bucket/lake"}, id="a lake with a key"),
        pytest.param(
            {"landing": "s3://AKIA:S3CRET@bucket/landing"}, id="a landing area with a key"
        ),
        pytest.param({"lake": "file:///S3CRET/lake"}, id="a lake in a folder, by an address"),
        pytest.param(
            {"landing": "hdfs://S3CRET/landing"}, id="a landing area in a store that is not read"
        ),
    ],
)
def test_a_value_that_may_be_secret_is_refused_without_being_shown(given):
    with pytest.raises(SettingsError) as refused:
        read_settings(**given)
    (name,) = given
    assert str(refused.value).startswith(f"BACKFILL_{name.upper()} is not allowed: ")
    assert "CRET" not in str(refused.value)


def test_an_account_in_the_address_of_a_store_is_no_password():
    lake = "abfss://container@account.dfs.core.windows.net/lake"
    assert read_settings(lake=lake).lake == lake


def test_a_user_name_that_is_not_utf_8_can_be_recorded(monkeypatch):
    monkeypatch.setenv("LOGNAME", os.fsdecode(b"caf\xe9"))
    assert user_name() == r"caf\udce9"
    assert user_name().encode()


def test_urls_of_alerts_are_split_before_a_scheme_and_never_shown():
    text = "mailto://a:S3CRET@h?to=x@h,y@h, slack://S3CRET/B/C\njson://h json://h"
    found = read_settings(alerts=text)
    assert [url.get_secret_value() for url in found.alerts] == [
        "mailto://a:S3CRET@h?to=x@h,y@h",
        "slack://S3CRET/B/C",
        "json://h",
    ]
    assert "S3CRET" not in f"{found} {found!r} {found.model_dump_json()}"
    assert read_settings(alerts="").alerts == ()
