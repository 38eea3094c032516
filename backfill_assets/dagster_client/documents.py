"""Every GraphQL document of this project. A test validates each against the schema.

`... on Error` misses some error types of this Dagster, so each type that can come back is named,
with its message.
"""

VERSION = "{ version }"

DAEMONS = "{ instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } } }"

# All keys are requested: in this Dagster the last one by `partitionKeyConnection(ascending: false)`
# is yesterday, even where the calendar has a fixed last day.
TABLES = """{
  assetNodes(loadMaterializations: false) {
    assetKey { path } isPartitioned isMaterializable opVersion partitionKeys
    repository { name location { name } }
    metadataEntries { label ... on TextMetadataEntry { text } }
  }
}"""

# Whether each code location is loaded, and why not.
LOCATIONS = """{
  workspaceOrError {
    __typename
    ... on Workspace { locationEntries { name locationOrLoadError {
      __typename
      ... on RepositoryLocation { name }
      ... on PythonError { className message causes { message } }
    } } }
    ... on PythonError { message }
  }
}"""

# The types of errors that launching can answer with.
_NOT_LAUNCHED = """
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

LAUNCH_RUN = f"""mutation ($params: ExecutionParams!) {{
  launchRun(executionParams: $params) {{
    __typename
    ... on LaunchRunSuccess {{ run {{ runId }} }}{_NOT_LAUNCHED}  }}
}}"""

# The assets of all code locations, with their readers.
GRAPH = """{
  assetNodes(loadMaterializations: false) {
    assetKey { path } isMaterializable isPartitioned dependedByKeys { path }
  }
}"""

# The partitions of selected assets to which days of their root are mapped.
MAPPED = """query ($params: AssetBackfillPreviewParams!) {
  assetBackfillPreview(params: $params) {
    assetKey { path } partitions { ranges { start end } partitionKeys }
  }
}"""

LAUNCH_BACKFILL = f"""mutation ($params: LaunchBackfillParams!) {{
  launchPartitionBackfill(backfillParams: $params) {{
    __typename
    ... on LaunchBackfillSuccess {{ backfillId }}
    ... on PartitionSetNotFoundError {{ message }}
    ... on PartitionKeysNotFoundError {{ message }}{_NOT_LAUNCHED}  }}
}}"""

RUNS = """query ($filter: RunsFilter!) {
  runsOrError(filter: $filter) {
    __typename
    ... on Runs { results { runId status tags { key value } stepStats { stepKey status } } }
    ... on InvalidPipelineRunsFilterError { message }
    ... on PythonError { message }
  }
}"""

# Backfills, and runs that belong to none.
FEED = """query ($filter: RunsFilter!, $limit: Int!) {
  runsFeedOrError(limit: $limit, view: ROOTS, filter: $filter) {
    __typename
    ... on RunsFeedConnection {
      results {
        __typename id runStatus jobName tags { key value } creationTime assetSelection { path }
        ... on PartitionBackfill { status title numPartitions }
      }
    }
    ... on PythonError { message }
  }
}"""

CANCEL_RUN = """mutation ($id: String!) {
  terminateRun(runId: $id) {
    __typename
    ... on TerminateRunSuccess { run { runId } }
    ... on TerminateRunFailure { message }
    ... on RunNotFoundError { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}"""

FAILURES = """query ($run: ID!, $cursor: String) {
  logsForRun(runId: $run, afterCursor: $cursor, limit: 5000) {
    __typename
    ... on EventConnection { cursor hasMore events { __typename ... on ExecutionStepFailureEvent {
        stepKey
        error { message }
        failureMetadata { metadataEntries { label ... on JsonMetadataEntry { jsonString } } }
      } } }
    ... on RunNotFoundError { message }
    ... on PythonError { message }
  }
}"""

# Observations have the metadata that a run gives to days without building them.
OBSERVED = """query ($run: ID!, $cursor: String) {
  logsForRun(runId: $run, afterCursor: $cursor, limit: 5000) {
    __typename
    ... on EventConnection {
      cursor hasMore
      events {
        __typename
        ... on ObservationEvent {
          metadataEntries { label ... on JsonMetadataEntry { jsonString } }
        }
      }
    }
    ... on RunNotFoundError { message }
    ... on PythonError { message }
  }
}"""

# One table a request: ten years of days take two seconds.
MATERIALIZED = """query ($key: AssetKeyInput!, $days: [String!]) {
  assetNodes(assetKeys: [$key]) {
    isPartitioned partitionKeys
    latestMaterializationByPartition(partitions: $days) { partition timestamp tags { key value } }
    newest: assetMaterializations(limit: 1) { partition timestamp tags { key value } }
    assetPartitionStatuses {
      __typename
      ... on TimePartitionStatuses { ranges { status startKey endKey } }
    }
  }
}"""

STALE = """query ($key: AssetKeyInput!, $days: [String!]!) {
  assetNodes(assetKeys: [$key]) { staleStatusByPartition(partitions: $days) }
}"""

UNFINISHED = """{
  runsOrError(filter: {statuses: [QUEUED, NOT_STARTED, STARTING, STARTED, CANCELING]}) {
    __typename
    ... on Runs { results { runId jobName assetSelection { path } } }
    ... on InvalidPipelineRunsFilterError { message }
    ... on PythonError { message }
  }
}"""

RUN_IDS = """query ($filter: RunsFilter!) {
  runsOrError(filter: $filter) {
    __typename
    ... on Runs { results { runId } }
    ... on InvalidPipelineRunsFilterError { message }
    ... on PythonError { message }
  }
}"""

RELOAD = """mutation ($location: String!) {
  reloadRepositoryLocation(repositoryLocationName: $location) {
    __typename
    ... on WorkspaceLocationEntry {
      loadStatus
      locationOrLoadError {
        __typename
        ... on RepositoryLocation { name }
        ... on PythonError { message }
      }
    }
    ... on ReloadNotSupported { message }
    ... on RepositoryLocationNotFound { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}"""

WIPE = """mutation ($assets: [PartitionsByAssetSelector!]!) {
  wipeAssets(assetPartitionRanges: $assets) {
    __typename
    ... on AssetWipeSuccess { assetPartitionRanges { assetKey { path } } }
    ... on AssetNotFoundError { message }
    ... on UnauthorizedError { message }
    ... on UnsupportedOperationError { message }
    ... on PythonError { message }
  }
}"""
