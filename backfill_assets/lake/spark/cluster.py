"""A driver on a cluster: its settings, and waiting for its executors.

The driver runs where the run does. Executors connect to it, and it sends them its code.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from backfill_assets.errors import NOTHING_COMPUTED, ServiceUnavailable
from backfill_assets.settings import host_of

SECRET = "spark.authenticate.secret"
# These masters give each application a secret. A standalone master has one secret for all.
_WITH_SECRETS = ("yarn", "k8s://")
CLUSTER = {
    # Partitions of 64 MB: a small slice is one task, a large slice several.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "1000",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64m",
    # With dynamic allocation, an executor with shuffle files would never end.
    "spark.dynamicAllocation.shuffleTracking.timeout": "10m",
}
# Without a limit, the first run takes all cores of a standalone cluster until it ends.
STANDALONE = {"spark.cores.max": "8"}
# A free worker takes a few seconds to start an executor.
PATIENCE_S = 20.0
WORKER_PYTHON = "PYSPARK_PYTHON"
_LOOK_EVERY_S = 1.0
_CONNECT_TIMEOUT_S = 10.0
_NO_EXECUTORS = (
    "No executor of {} has come for {} s. Other runs may hold all cores, or no"
    " worker has as many cores and as much memory as an executor asks for"
    " (spark.executor.cores, spark.executor.memory). The run waits. So that runs share the"
    " cluster, set spark.cores.max or spark.dynamicAllocation.enabled in BACKFILL_SPARK_CONF."
)


def is_cluster(master: str) -> bool:
    """True unless the driver computes alone, or starts executors only for itself."""
    return not master.startswith("local")


def worker_python(master: str) -> dict[str, str]:
    """The variable by which workers on this machine run functions with this Python.

    Spark would take the `python3` of the search path, which may lack the packages.
    """
    is_named = is_cluster(master) or WORKER_PYTHON in os.environ
    return {} if is_named else {WORKER_PYTHON: sys.executable}


def cluster_conf(master: str, own: Mapping[str, str]) -> dict[str, str]:
    """The settings of a driver of the cluster `master`. `own` are the settings of its user."""
    conf = dict(CLUSTER)
    if master.startswith("spark://"):
        conf |= STANDALONE
    if SECRET in own or master.startswith(_WITH_SECRETS):
        conf["spark.authenticate"] = "true"
    address = _address_towards(master)
    if address and not {"spark.driver.host", "spark.driver.bindAddress"} & own.keys():
        # Not on the addresses of other networks.
        conf |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
    return conf


def _address_towards(master: str) -> str:
    """The address of this machine on the network of the master. "" if unknown."""
    for host, port in _places(master):
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Nothing is sent: the system chooses the address from which it would send.
        with suppress(OSError), closing(socket.socket(kind, socket.SOCK_DGRAM)) as probe:
            probe.connect((host, port))
            return str(probe.getsockname()[0])
    return ""


def _places(master: str) -> Iterator[tuple[str, int]]:
    """The hosts and ports in the address of a master. YARN has none."""
    for place in master.removeprefix("k8s://").rpartition("://")[2].split(","):
        url = urlsplit(f"//{place}")
        if "://" in master and url.hostname:
            yield url.hostname, url.port or (15002 if master.startswith("sc://") else 443)


def refuse_silent_master(master: str) -> None:
    """Raise ServiceUnavailable if no standalone master accepts a connection.

    Spark would try for a minute, and then end the driver during the work.
    """
    if master.startswith("spark://"):
        refuse_silent(master)


def refuse_silent(address: str) -> None:
    """Raise ServiceUnavailable if no master or Spark Connect server accepts a connection."""
    for place in _places(address):
        with suppress(OSError), socket.create_connection(place, _CONNECT_TIMEOUT_S):
            return
    is_remote = address.startswith("sc://")
    kind = "Connect server" if is_remote else "master"
    setting = "BACKFILL_SPARK_REMOTE" if is_remote else "BACKFILL_SPARK_MASTER"
    raise ServiceUnavailable(
        f"No Spark {kind} answers at {host_of(address)}.",
        unchanged=NOTHING_COMPUTED,
        next_step=f"Start it, or correct {setting}. Then run again.",
    )


def watch_executors(
    spark: SparkSession, say: Callable[[str], None], patience: float = PATIENCE_S
) -> threading.Thread:
    """Say when work has waited for an executor for `patience` seconds, and when one came.

    Ends with the driver.
    """

    def watch() -> None:
        context = spark.sparkContext
        master = str(context.master)
        tracker = context.statusTracker()
        without = time.monotonic()
        said = False
        # Py4J raises many kinds of errors after the driver has ended.
        with suppress(Exception):
            while not context._jsc.sc().isStopped():
                # The driver counts as one executor.
                is_waiting = context._jsc.sc().getExecutorMemoryStatus().size() < 2 and bool(
                    tracker.getActiveStageIds()
                )
                waited = time.monotonic() - without
                if is_waiting and waited >= patience and not said:
                    said = True
                    say(_NO_EXECUTORS.format(master, round(waited)))
                elif not is_waiting:
                    if said:
                        say(f"An executor of {master} came after {round(waited)} s.")
                    said = False
                    without = time.monotonic()
                time.sleep(_LOOK_EVERY_S)

    thread = threading.Thread(target=watch, name="executors", daemon=True)
    thread.start()
    return thread
