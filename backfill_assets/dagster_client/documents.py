"""Every GraphQL document this project sends. A test validates each against the installed schema.

`... on Error` misses some error types of this Dagster, so each type that can come back is asked for its message by name.
"""

VERSION = "{ version }"

DAEMONS = "{ instance { daemonHealth { allDaemonStatuses { daemonType required healthy lastHeartbeatErrors { message } } } } }"

POOLS = "{ instance { concurrencyLimits { concurrencyKey limit usingDefaultLimit } } }"

SET_POOL = "mutation ($pool: String!, $limit: Int!) { setConcurrencyLimit(concurrencyKey: $pool, limit: $limit) }"

# All keys are asked for: in this Dagster the last one by `partitionKeyConnection(ascending: false)` is yesterday, even where
# the calendar has a fixed last day.
TABLES = """{
  assetNodes(loadMaterializations: false) { assetKey { path } isPartitioned opVersion partitionKeys }
}"""

# What launching can answer, of a new backfill and of one launched again.
LAUNCHED = """
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PartitionSetNotFoundError { message }
    ... on PartitionKeysNotFoundError { message }
    ... on InvalidStepError { invalidStepKey }
    ... on InvalidOutputError { stepKey invalidOutputName }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on PipelineNotFoundError { message }
    ... on RunConflict { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message stack }
    ... on InvalidSubsetError { message }
    ... on PresetNotFoundError { message }
    ... on ConflictingExecutionParamsError { message }
    ... on NoModeProvidedError { message }
"""

LAUNCH = f"""mutation ($params: LaunchBackfillParams!) {{
  launchPartitionBackfill(backfillParams: $params) {{ {LAUNCHED} }}
}}"""

BACKFILL = """query ($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    __typename
    ... on PartitionBackfill { id status error { message } }
    ... on BackfillNotFoundError { message }
    ... on PythonError { message }
  }
}"""

RUNS = """query ($id: String!) {
  runsOrError(filter: {tags: [{key: "dagster/backfill", value: $id}]}) {
    __typename
    ... on Runs { results { runId status startTime endTime stepStats { stepKey status } } }
    ... on InvalidPipelineRunsFilterError { message }
    ... on PythonError { message }
  }
}"""

BACKFILLS = """query ($tags: [ExecutionTag!], $most: Int!) {
  runsFeedOrError(limit: $most, view: BACKFILLS, filter: {tags: $tags}) {
    __typename
    ... on RunsFeedConnection {
      results { id tags { key value } creationTime endTime ... on PartitionBackfill { status title numPartitions } }
    }
    ... on PythonError { message }
  }
}"""

CANCEL = """mutation ($id: String!) {
  cancelPartitionBackfill(backfillId: $id) {
    __typename
    ... on CancelBackfillSuccess { backfillId }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}"""

FAILURES = """query ($run: ID!) {
  logsForRun(runId: $run, limit: 5000) {
    __typename
    ... on EventConnection { events { __typename ... on ExecutionStepFailureEvent { stepKey error { message } } } }
    ... on RunNotFoundError { message }
    ... on PythonError { message }
  }
}"""

# RebuildRequest table by table: ten years of days take two seconds.
MATERIALIZED = """query ($key: AssetKeyInput!) {
  assetNodes(assetKeys: [$key]) {
    partitionKeys
    latestMaterializationByPartition { partition tags { key value } }
  }
}"""

AT_WORK = """{
  runsOrError(filter: {statuses: [STARTING, STARTED, CANCELING]}) {
    __typename
    ... on Runs { results { runId } }
    ... on InvalidPipelineRunsFilterError { message }
    ... on PythonError { message }
  }
}"""
