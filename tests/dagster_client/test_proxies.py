"""A webserver behind a real proxy: TLS of a private CA, a login, and a proxy of the environment."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import ServiceUnavailable, SettingsError
from backfill_assets.settings import read_settings
from tests.worlds.http_server import Request, http_server
from tests.worlds.proxy import LOGIN, TOKEN, token_proxy

pytestmark = pytest.mark.services


@pytest.fixture
def proxy(tmp_path: Path, proxied: tuple[str, list[str]]) -> Iterator[tuple[str, Path]]:
    with token_proxy(tmp_path, proxied[0]) as made:
        yield made


@pytest.fixture
def proxied() -> Iterator[tuple[str, list[str]]]:
    """A server that answers as a webserver does, and the targets of its requests."""
    asked = list[str]()

    def version(request: Request) -> None:
        asked.append(request.path)
        request.body()
        request.answer(200, b'{"data": {"version": "1"}}', content_type="application/json")

    with http_server(version) as address:
        yield address, asked


def test_a_webserver_behind_tls_and_a_token_is_asked(proxy, proxied):
    url, ca = proxy
    assert Dagster(f"{url}/dagster", token=TOKEN, ca=ca).answers()
    assert proxied[1] == ["/dagster/graphql"]


def test_a_certificate_of_another_ca_is_named_with_the_setting(proxy):
    with pytest.raises(ServiceUnavailable) as refused:
        Dagster(proxy[0], token=TOKEN).ask("{ version }")
    assert "certificate" in refused.value.what
    assert "BACKFILL_DAGSTER_CA" in refused.value.next_step


def test_a_token_that_is_not_accepted_is_explained(proxy):
    url, ca = proxy
    with pytest.raises(ServiceUnavailable, match=LOGIN) as refused:
        Dagster(url, token="another", ca=ca).ask("{ version }")
    assert "BACKFILL_DAGSTER_TOKEN" in refused.value.next_step


def test_the_proxy_of_the_environment_is_used_for_other_hosts_only(proxied, monkeypatch):
    address, asked = proxied
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", address)
    monkeypatch.setenv("http_proxy", address)
    assert Dagster("http://dagster.invalid").answers()
    assert asked == ["http://dagster.invalid/graphql"]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert Dagster(address).answers()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "gopher://ada:s3cret@proxy:3128"),
        ("HTTPS_PROXY", "http://ada:s3cr#et@proxy:3128"),
        ("NO_PROXY", "[::1]"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_explained_without_its_password(name, value, monkeypatch):
    for each in {name, name.lower()}:
        monkeypatch.setenv(each, value)
    dagster = Dagster("https://dagster.example.com")
    assert not dagster.answers()
    with pytest.raises(ServiceUnavailable) as refused:
        dagster.ask("{ version }")
    assert "NO_PROXY" in refused.value.next_step
    assert "s3cr" not in str(refused.value)
    assert Dagster("http://127.0.0.1:9").client


def test_a_file_without_certificates_is_refused_as_a_setting(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(SettingsError, match="BACKFILL_DAGSTER_CA"):
        read_settings(dagster_ca=str(file))


@pytest.mark.parametrize(
    ("response", "checks"),
    [
        pytest.param(httpx.Response(200, json={"data": {"version": "1"}}), False, id="a stock one"),
        pytest.param(httpx.Response(403, text="A web page of ..."), True, id="ours"),
    ],
)
def test_a_stock_webserver_is_told_from_ours(response, checks):
    dagster = Dagster("http://dagster", transport=httpx.MockTransport(lambda _: response))
    assert dagster.checks_origins() == checks
