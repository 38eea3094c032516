"""An S3 store: settings for the three libraries that read it, and conditional writes.

`deltalake` reads and commits tables, `obstore` reads deliveries and keeps leases, and Spark's S3A
reads and writes rows. All get the keys, the region and the endpoint from AWS's usual variables, or
else from the profile that `AWS_PROFILE` names. For other stores, `deltalake` and `obstore` read the
stores' own variables; S3A does not.
"""

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from configparser import ConfigParser, Error
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError
from obstore.store import from_url

from backfill_assets.errors import ServiceUnavailable, SettingsError, first_line
from backfill_assets.settings import is_in_s3

# A store that does not answer is reported within a minute.
_PATIENCE = timedelta(seconds=30)
RETRIES = 4


@dataclass(frozen=True)
class S3Settings:
    """The access to an S3 store. Empty keys come from the machine or its service."""

    key: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    region: str = "us-east-1"
    endpoint: str = ""
    by_host: bool = False
    from_profile: bool = False

    @property
    def is_plain_http(self) -> bool:
        return self.endpoint.startswith("http://")

    @property
    def options(self) -> dict[str, str]:
        """The settings under the names that `deltalake` and `obstore` share."""
        options = {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token,
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(self.by_host).lower(),
        }
        return {name: value for name, value in options.items() if value}


def s3_settings(environ: Mapping[str, str] = os.environ) -> S3Settings:
    """The settings of S3 stores in the environment and the profile that it names.

    Raises SettingsError for an endpoint that is not a web address, because the libraries panic.
    """
    profile = _profile(environ)
    key = "AWS_ACCESS_KEY_ID"
    from_profile = not environ.get(key) and key.lower() in profile
    keys = {name.upper(): value for name, value in profile.items()} if from_profile else environ
    endpoint = (
        environ.get("AWS_ENDPOINT_URL_S3")
        or environ.get("AWS_ENDPOINT_URL")
        or environ.get("AWS_ENDPOINT")  # a name that `deltalake` and `obstore` know too
        or profile.get("endpoint_url", "")
    )
    if endpoint and not re.match(r"https?://[^/]", endpoint):
        raise SettingsError(
            f"The endpoint of the store, {endpoint}, does not begin with http:// or https://.",
            unchanged="Nothing was done.",
            next_step="Correct AWS_ENDPOINT_URL, or endpoint_url in the profile.",
        )
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    by_host = environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "" if endpoint else "true")
    return S3Settings(
        key=keys.get(key, ""),
        secret=keys.get("AWS_SECRET_ACCESS_KEY", ""),
        token=keys.get("AWS_SESSION_TOKEN", ""),
        region=region or profile.get("region", S3Settings.region),
        endpoint=endpoint.rstrip("/"),
        by_host=by_host.lower() == "true",
        from_profile=from_profile,
    )


def _profile(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The values of the profile in AWS's two files. Empty without the files."""
    name = environ.get("AWS_PROFILE") or "default"
    folder = Path("~/.aws").expanduser()
    config = environ.get("AWS_CONFIG_FILE") or folder / "config"
    keys = environ.get("AWS_SHARED_CREDENTIALS_FILE") or folder / "credentials"
    values: dict[str, str] = {}
    for file, section in ((config, f"profile {name}"), (config, name), (keys, name)):
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(Path(file).expanduser())
        except (OSError, Error):
            continue
        values |= dict(parser[section]) if section in parser else {}
    return values


def delta_options(place: str) -> dict[str, str] | None:
    """The `storage_options` of a Delta table or a file at `place`. None outside S3."""
    if not is_in_s3(place):
        return None
    settings = s3_settings()
    options = settings.options | {
        "max_retries": str(RETRIES),
        "retry_timeout": f"{_PATIENCE.seconds}s",
    }
    return options | ({"AWS_ALLOW_HTTP": "true"} if settings.is_plain_http else {})


def store_at(place: str, retries: int = RETRIES) -> Any:
    """The objects below `place`, read with `obstore`. Its paths are relative to `place`."""
    return _store(place, retries, s3_settings() if is_in_s3(place) else None)


@lru_cache(maxsize=64)
def _store(place: str, retries: int, settings: S3Settings | None) -> Any:
    retry: Any = {"max_retries": retries, "retry_timeout": _PATIENCE}
    if settings is None:
        return from_url(place, retry_config=retry)
    config: Any = settings.options
    client: Any = {"allow_http": settings.is_plain_http}
    return from_url(place, config=config, client_options=client, retry_config=retry)


def s3a_conf() -> dict[str, str]:
    """The settings of Spark's S3A, without keys: Spark reads the same variables and profile."""
    settings = s3_settings()
    conf = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint.region": settings.region,
        "fs.s3a.path.style.access": str(not settings.by_host).lower(),
        # Each write has its own folder, so the folder is empty before.
        "fs.s3a.performance.flags": "create,mkdir,delete",
    }
    if settings.endpoint:
        conf["fs.s3a.endpoint"] = settings.endpoint
        conf["fs.s3a.connection.ssl.enabled"] = str(not settings.is_plain_http).lower()
    if settings.from_profile:
        conf["fs.s3a.aws.credentials.provider"] = (
            "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider"
        )
    return {f"spark.hadoop.{name}": value for name, value in conf.items()}


def put_new(store: Any, path: str, contents: bytes) -> str | None:
    """Write an object, unless there is one at `path`. Returns its etag; None if there was one.

    The contents must be unique. So if the answer was lost, an object with these contents counts as
    written. Raises GenericError if the store refuses it and has no object there.
    """
    for _ in range(RETRIES):
        try:
            return _etag(obstore.put(store, path, contents, mode="create"))
        except (AlreadyExistsError, PreconditionError):
            # S3 may answer 409 to writes at the same time, and carry out none of them.
            if read_object(store, path):
                return _own_etag(store, path, contents)
    raise GenericError(f"{path} was refused {RETRIES} times, and is not there")


def replace(store: Any, path: str, contents: bytes, etag: str) -> str | None:
    """Replace the object with this etag. Returns the new etag; None if the object changed.

    As for `put_new`, the contents must be unique.
    """
    try:
        return _etag(obstore.put(store, path, contents, mode={"e_tag": etag}))
    except (AlreadyExistsError, PreconditionError, FileNotFoundError):
        return _own_etag(store, path, contents)


def _own_etag(store: Any, path: str, contents: bytes) -> str | None:
    found = read_object(store, path)
    return found.etag if found and found.contents == contents else None


class ReadObject(NamedTuple):
    """An object with its contents and its etag."""

    contents: bytes
    etag: str
    modified: datetime


def read_object(store: Any, path: str) -> ReadObject | None:
    """The object at `path`. None if there is none."""
    try:
        answer = obstore.get(store, path)
        return ReadObject(bytes(answer.bytes()), _etag(answer.meta), answer.meta["last_modified"])
    except FileNotFoundError:
        return None


def etag_of(place: str, path: str) -> str:
    """The etag of an object below `place`. Raises FileNotFoundError if there is none."""
    return _etag(obstore.head(store_at(place), path))


def listed_after(place: str, folder: str, name: str) -> Iterator[tuple[str, str]]:
    """The names and etags of the objects in a folder whose names come after `name`.

    A name is a path below the folder.
    """
    for chunk in obstore.list(store_at(place), folder, offset=f"{folder}/{name}", chunk_size=1000):
        for entry in chunk:
            yield entry["path"].removeprefix(f"{folder}/"), _etag(entry)


@lru_cache(maxsize=128)
def contents_of(place: str, path: str) -> bytes:
    """The contents of a small object that never changes. Raises OSError like a disk."""
    try:
        return bytes(obstore.get(store_at(place), path).bytes())
    except BaseError as error:
        raise OSError(f"{place}/{path} cannot be read: {why(error)}") from error


def put(place: str, path: str, contents: bytes) -> None:
    """Write an object below `place`. Raises OSError like a disk."""
    try:
        obstore.put(store_at(place), path, contents)
    except BaseError as error:
        raise OSError(f"{place}/{path} cannot be written: {why(error)}") from error


# Stores copy larger objects only in parts.
_LARGEST_COPY = 5 * 2**30


def copy_within_store(source: str, target: str, size: int) -> bool:
    """Let the store copy an object of `size` bytes to another address. False if it cannot.

    Raises OSError like a disk.
    """
    bucket = re.match(r"\w+://[^/]+", source)
    if not bucket or not target.startswith(f"{bucket[0]}/") or size > _LARGEST_COPY:
        return False
    start = len(bucket[0]) + 1
    try:
        obstore.copy(store_at(bucket[0]), source[start:], target[start:])
    except BaseError as error:
        raise OSError(f"{source} cannot be copied to {target}: {why(error)}") from error
    return True


def _etag(answer: Mapping[str, Any]) -> str:
    return str(answer["e_tag"] or "")


PROBE = "_probe"
STORE_REMEDY = (
    "Start the store, or correct BACKFILL_LAKE or the store's variables. `backfill doctor --lake`"
    " tries them, and `backfill guide object-store` lists them."
)


def refuse_unconditional(place: str) -> None:
    """Write, conditionally overwrite and delete an object below `place`.

    Raises ServiceUnavailable if the store does not answer, refuses one of them, or overwrites an
    object although the condition does not hold.
    """
    store = store_at(place)
    path = f"{PROBE}/{secrets.token_hex(8)}"
    try:
        first = obstore.put(store, path, b"first", mode="create")["e_tag"]
        try:
            again = put_new(store, path, b"again")
            second = obstore.put(store, path, b"second", mode={"e_tag": first or ""})["e_tag"]
            late = replace(store, path, b"late", first or "")
            found = read_object(store, path)
        finally:
            obstore.delete(store, path)
    except (BaseError, OSError) as error:
        raise ServiceUnavailable(
            f"{place} cannot be written: {why(error)}.",
            unchanged="Nothing was left there.",
            next_step=STORE_REMEDY,
        ) from error
    if again or late or first == second or found is None or found.contents != b"second":
        raise ServiceUnavailable(
            f"The store of {place} ignores the condition of a write: commits of two writers would"
            " overwrite each other.",
            unchanged="Nothing was left there.",
            next_step="Use a store with conditional writes (If-Match and If-None-Match).",
        )


_COLOURS = re.compile(r"\x1b\[\d*m|↳")
# The address at which clouds give credentials to their own machines. The library asks there if it
# has no credentials.
_METADATA_SERVICE = "169.254.169.254"
NO_CREDENTIALS = (
    "there are no credentials for it: set the store's variables, as AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
)


def why(error: Exception) -> str:
    """Turn the library's report into a short reason."""
    text = str(error).partition("\n\nDebug source")[0]
    return store_reason(text) or first_line(text, 200)


def store_reason(text: str) -> str:
    """The answer or the silence of a store, from a library's text. "" for other texts."""
    if _METADATA_SERVICE in text:
        return NO_CREDENTIALS
    answer = re.search(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", text, re.DOTALL)
    if answer:
        return f"{answer[1]}, {unescape(answer[2]).rstrip('.')}"
    endpoint = re.search(r"https?://[^/\s]+", text)
    place = endpoint[0] if endpoint else "the store"
    if "error sending request" in text:
        return f"{place} does not answer"
    status = re.search(r"non-2xx status code\W+(\d{3} \w+( \w+)*)", _COLOURS.sub("", text))
    return f"{place} answers {status[1]}" if status else ""
