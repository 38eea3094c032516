"""Descriptions of the outages' columns by name. A name means the same in every table.

Times are in UTC.
"""

OF_COLUMNS = {
    "arrival_day": "The day of the capture that showed the change, and of the delivered file.",
    "source_file": "The delivered file, below the landing area.",
    "line": "The line as delivered; U+FFFD stands for bytes that are not UTF-8.",
    "reason": "Why the line could not be read.",
    "outageNumber": "The utility's number of the outage.",
    "outageStartTime": "When the outage began, in epoch seconds.",
    "lastUpdateTime": (
        "When the utility last updated it, in epoch seconds; it repeats and runs backwards."
    ),
    "currentEtor": "The estimated time of restoration, in epoch seconds.",
    "autoEtor": "The automatic estimate of the time of restoration, in epoch seconds.",
    "crewEta": "When a crew is expected, in epoch seconds.",
    "crewCurrentStatus": "The crew's status, in words.",
    "cause": "The cause, in the utility's words.",
    "estCustAffected": "The estimated number of customers affected.",
    "hazardFlag": "Whether a hazard was reported: 1 or 0.",
    "latitude": "Degrees north, to two decimals.",
    "longitude": "Degrees east, to two decimals.",
    "regionName": "The utility's region.",
    "n_devices": "The number of devices affected.",
    "_op": "I: the outage appeared. U: it changed. D: it was gone.",
    "_captured_at": "When the outage map was captured.",
    "_commit": "The commit of the source's repository that holds the capture.",
    "unknown_fields": "Fields of the line that have no column, with their text.",
    "outage_number": "The utility's number of the outage.",
    "captured_at": "When the outage map was captured that showed the change.",
    "change": "I: the outage appeared. U: it changed. D: it was gone.",
    "outage_day": "The day the outage began.",
    "started_at": "When the outage began.",
    "last_update_at": "When the utility last updated it; it repeats and runs backwards.",
    "estimated_restoration_at": "The estimated time of restoration.",
    "automatic_estimate_at": "The automatic estimate of the time of restoration.",
    "crew_expected_at": "When a crew is expected.",
    "customers": (
        "The estimated number of customers affected; in features, of the day's outages together."
    ),
    "devices": "The number of devices affected.",
    "hazard_flags": "Whether a hazard was reported: 1 or 0.",
    "crew_status": "The crew's status, in words.",
    "region": "The utility's region.",
    "unparsed": "By column, the text that could not be read; the column is null.",
    "first_seen_at": "The first capture that showed the outage.",
    "last_seen_at": "The last capture that showed a change of it.",
    "restored_at": "The capture in which it was gone; null while it lasts.",
    "peak_customers": (
        "The most customers affected in any capture; in features, of the day's outages together."
    ),
    "updates": "The number of changes seen.",
    "outages": "The outages that began in the region on the day.",
    "restored": "Those of them that were gone within the horizon.",
    "equipment_share": "The share of them caused by equipment, 0 to 1.",
    "weather_share": "The share of them caused by the weather, 0 to 1.",
    "planned_share": "The share of them that were scheduled maintenance, 0 to 1.",
    "safety_shutoff_share": "The share of them that were shutoffs for public safety, 0 to 1.",
    "unknown_share": "The share of them of unknown cause, 0 to 1.",
    "mean_restoration_minutes": (
        "Minutes from the beginning to the capture in which it was gone, on average."
    ),
    "max_restoration_minutes": "The same of the longest one, in minutes.",
    "outages_7d": "Outages of the day and the six before it.",
    "customers_7d": "Customers affected on the day and the six before it.",
    "outages_total": "Outages since the first day of the calendar.",
    "customers_total": "Customers affected since the first day of the calendar.",
    "days_with_outages": "Days with an outage since the first day of the calendar.",
    "first_outage_day": "The first day with an outage.",
    "appeared": (
        "Those of the changes in which an outage appeared; one that was gone and comes back appears"
        " again."
    ),
    "median_lag_hours": (
        "Hours from the beginning of the outage to the capture: half of the changes had at most"
        " these."
    ),
    "p90_lag_hours": "The same of nine in ten.",
    "max_lag_hours": "The same of all.",
    "in_time": "Changes that arrived up to two days after the day that they are about.",
    "late": (
        "Changes that arrived later, within the horizon: they make the day that they are about"
        " outdated."
    ),
    "outside_horizon": (
        "Changes about an earlier day, a day to come or an unknown one: in no day of outages."
    ),
}
