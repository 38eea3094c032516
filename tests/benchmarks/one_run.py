"""One Dagster run of this code location over a range of days: `one_run.py FIRST LAST`, settings
from the environment.

Prints the seconds from run start to run end, as Dagster recorded them, as the last line.
"""

import os
import shutil
import sys
from pathlib import Path

from dagster import DagsterInstance
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from backfill_assets.datasets.outages.project import defs
from backfill_assets.servers.home import DAGSTER_YAML


def main(first: str, last: str) -> int:
    home = Path(os.environ["DAGSTER_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(DAGSTER_YAML, home / "dagster.yaml")
    instance = DagsterInstance.get()
    job = defs.resolve_job_def("rebuild")
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    run = instance.create_run_for_job(job, tags=tags)
    result = execute_run(InMemoryJob(job), run, instance, raise_on_error=False)
    record = instance.get_run_record_by_id(run.run_id)
    if record and record.start_time and record.end_time:
        print(f"{record.end_time - record.start_time:.2f}")
    return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
