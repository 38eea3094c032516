"""What the journeys ask a real webserver. `test_graphql_documents` validates these too."""

DAYS = """query ($table: AssetKeyInput!) {
  assetNodeOrError(assetKey: $table) {
    __typename
    ... on AssetNode {
      assetPartitionStatuses {
        ... on TimePartitionStatuses { ranges { startKey endKey status } }
      }
    }
    ... on AssetNotFoundError { message }
  }
}"""

CHECK = """query ($table: AssetKeyInput!, $check: String!, $day: String) {
  assetCheckExecutions(assetKey: $table, checkName: $check, partition: $day, limit: 500) {
    status evaluation { partition success description }
  }
}"""

STALE = """query ($table: AssetKeyInput!, $days: [String!]!) {
  assetNodeOrError(assetKey: $table) {
    __typename
    ... on AssetNode { staleStatusByPartition(partitions: $days) }
    ... on AssetNotFoundError { message }
  }
}"""

SCHEDULE = """query ($schedule: ScheduleSelector!) {
  scheduleOrError(scheduleSelector: $schedule) {
    __typename
    ... on Schedule {
      scheduleState { id status ticks(limit: 5) { status runIds error { message } } }
    }
    ... on ScheduleNotFoundError { message }
    ... on PythonError { message }
  }
}"""

START_SCHEDULE = """mutation ($schedule: ScheduleSelector!) {
  startSchedule(scheduleSelector: $schedule) {
    __typename
    ... on ScheduleStateResult { scheduleState { id status } }
    ... on ScheduleNotFoundError { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}"""

STOP_SCHEDULE = """mutation ($id: String!) {
  stopRunningSchedule(id: $id) {
    __typename
    ... on ScheduleStateResult { scheduleState { status } }
    ... on ScheduleNotFoundError { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}"""

RUN = """query ($run: ID!) {
  runOrError(runId: $run) {
    __typename
    ... on Run { status tags { key value } }
    ... on RunNotFoundError { message }
    ... on PythonError { message }
  }
}"""

MESSAGES = """query ($run: ID!) {
  logsForRun(runId: $run, limit: 5000) {
    __typename
    ... on EventConnection { events { ... on MessageEvent { message } } }
    ... on RunNotFoundError { message }
    ... on PythonError { message }
  }
}"""

PLACES = """{
  instance {
    concurrencyLimits {
      concurrencyKey claimedSlots { runId stepKey } pendingSteps { runId stepKey }
    }
  }
}"""

UNFINISHED = """{
  runsOrError(filter: {statuses: [QUEUED, NOT_STARTED, MANAGED, STARTING, STARTED, CANCELING]}) {
    __typename
    ... on Runs { results { runId status } }
    ... on InvalidPipelineRunsFilterError { message }
    ... on PythonError { message }
  }
}"""
