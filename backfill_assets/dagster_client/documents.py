"""Every GraphQL document this project sends. A test validates each against the installed schema.

`... on Error` misses some error types of this Dagster, so each type that can come back is named, with its message.
"""

VERSION = "{ version }"

DAEMONS = "{ instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } } }"

POOLS = "{ instance { concurrencyLimits { concurrencyKey limit usingDefaultLimit } } }"

SET_POOL = "mutation ($pool: String!, $limit: Int!) { setConcurrencyLimit(concurrencyKey: $pool, limit: $limit) }"

# All keys are requested: in this Dagster the last one by `partitionKeyConnection(ascending: false)` is yesterday, even where
# the calendar has a fixed last day.
TABLES = """{
  assetNodes(loadMaterializations: false) {
    assetKey { path } isPartitioned opVersion partitionKeys metadataEntries { label ... on TextMetadataEntry { text } }
  }
}"""

# The types that launching a backfill can answer with.
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
    ... on PythonError { message }
    ... on InvalidSubsetError { message }
    ... on PresetNotFoundError { message }
    ... on ConflictingExecutionParamsError { message }
    ... on NoModeProvidedError { message }
"""

LAUNCH = f"""mutation ($params: LaunchBackfillParams!) {{
  launchPartitionBackfill(backfillParams: $params) {{ {LAUNCHED} }}
}}"""

RUNS = """query ($id: String!) {
  runsOrError(filter: {tags: [{key: "dagster/backfill", value: $id}]}) {
    __typename
    ... on Runs { results { runId status tags { key value } stepStats { stepKey status } } }
    ... on InvalidPipelineRunsFilterError { message }
    ... on PythonError { message }
  }
}"""

BACKFILLS = """query ($tags: [ExecutionTag!], $limit: Int!) {
  runsFeedOrError(limit: $limit, view: BACKFILLS, filter: {tags: $tags}) {
    __typename
    ... on RunsFeedConnection {
      results { id tags { key value } creationTime ... on PartitionBackfill { status title numPartitions } }
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

# One table a request: ten years of days take two seconds.
MATERIALIZED = """query ($key: AssetKeyInput!, $days: [String!]) {
  assetNodes(assetKeys: [$key]) {
    partitionKeys
    latestMaterializationByPartition(partitions: $days) { partition timestamp tags { key value } }
    assetPartitionStatuses {
      __typename
      ... on TimePartitionStatuses { ranges { status startKey endKey } }
    }
  }
}"""

STALE = """query ($key: AssetKeyInput!, $days: [String!]!) {
  assetNodes(assetKeys: [$key]) { staleStatusByPartition(partitions: $days) }
}"""

RUNNING = """{
  runsOrError(filter: {statuses: [STARTING, STARTED, CANCELING]}) {
    __typename
    ... on Runs { results { runId } }
    ... on InvalidPipelineRunsFilterError { message }
    ... on PythonError { message }
  }
}"""
