"""`backfill up`: the webserver, daemon and engine of this lake, in the foreground; `backfill down` stops them."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.cli.rendering import terminal
from backfill_assets.errors import ServiceUnavailable
from backfill_assets.servers.home import servers_record
from backfill_assets.servers.stack import Servers, servers_on
from backfill_assets.setting_names import host_of
from backfill_assets.settings import read_settings
from backfill_assets.workspace import open_workspace

CHECK_EVERY_S = 0.5
# Each server is given time to end by itself before it is ended.
STOP_TIMEOUT_S = 90


def run(port: int) -> int:
    console = terminal()
    workspace = open_workspace()
    settings = workspace.settings
    with interrupted_by_signals(), servers_on(settings, port, console.print, workspace.packages) as servers:
        spark = host_of(settings.spark_remote or "") or settings.spark_master
        engine = f"engine {servers.engine.remote}" if servers.engine else f"Spark {spark}"
        console.print(f"Dagster: {servers.dagster.url}   lake: {settings.lake}   {engine}")
        console.print(f"Logs: {settings.home / 'logs'}. Ctrl-C stops all servers.")
        watch(servers)
    console.print("All servers have stopped.")
    return 0


def down() -> int:
    """Stop the servers of this home as Ctrl-C does, and wait until they have ended. ServiceUnavailable if they do not."""
    settings = read_settings()  # whether the project can be imported or not
    record = servers_record(settings.home)
    if record is None or (process := record.up.find()) is None:
        print(f"No servers run on {settings.home}. Nothing was stopped.")
        return 0
    process.terminate()
    runs = retry_if_result(lambda still: still is not None)  # one that nobody has waited for counts as ended
    try:
        Retrying(stop=stop_after_delay(STOP_TIMEOUT_S), wait=wait_fixed(0.2), retry=runs)(record.up.find)
    except RetryError:
        raise ServiceUnavailable(
            f"The servers on {settings.home} (process {process.pid}) did not end within {STOP_TIMEOUT_S} s. They may still be "
            f"ending; see {settings.home / 'logs'}."
        ) from None
    print("All servers have stopped.")
    return 0


def watch(servers: Servers, sleep: Callable[[float], None] = time.sleep) -> None:
    """Keep the servers running until Ctrl-C or SIGTERM."""
    try:
        while True:
            servers.check()
            sleep(CHECK_EVERY_S)
    except KeyboardInterrupt:
        return


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does, so that every `finally` runs and no child is left."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
