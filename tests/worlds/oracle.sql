-- An independent reading of the source files, in DuckDB. Nothing here comes from the package.
-- {files}: the glob of the source files. {horizon}: 14.

CREATE TEMP TABLE lines AS
SELECT CAST(regexp_replace(filename, '.*/year=(\d+)/month=(\d+)/day=(\d+)/.*', '\1-\2-\3') AS DATE) AS arrival_day,
       regexp_extract(filename, 'outage_events/.*') AS source_file, json AS line
FROM read_json_objects('{files}', format = 'newline_delimited', filename = true);

CREATE TEMP TABLE raw AS
SELECT arrival_day, source_file,
       line ->> 'outageNumber' AS "outageNumber", line ->> 'outageStartTime' AS "outageStartTime",
       line ->> 'lastUpdateTime' AS "lastUpdateTime", line ->> 'currentEtor' AS "currentEtor", line ->> 'autoEtor' AS "autoEtor",
       line ->> 'crewEta' AS "crewEta", line ->> 'crewCurrentStatus' AS "crewCurrentStatus", line ->> 'cause' AS cause,
       line ->> 'estCustAffected' AS "estCustAffected", line ->> 'hazardFlag' AS "hazardFlag", line ->> 'latitude' AS latitude,
       line ->> 'longitude' AS longitude, line ->> 'regionName' AS "regionName", line ->> 'n_devices' AS n_devices,
       line ->> '_op' AS _op, line ->> '_captured_at' AS _captured_at, line ->> '_commit' AS _commit,
       MAP {{}} AS unknown_fields
FROM lines;

CREATE TEMP TABLE updates AS
SELECT DISTINCT arrival_day, "outageNumber" AS outage_number, CAST(_captured_at AS TIMESTAMPTZ) AS captured_at, _op AS change,
       CAST(epoch_ms(1000 * CAST("outageStartTime" AS BIGINT)) AS DATE) AS outage_day,
       to_timestamp(CAST("outageStartTime" AS BIGINT)) AS started_at,
       to_timestamp(CAST("lastUpdateTime" AS BIGINT)) AS last_update_at,
       to_timestamp(CAST("currentEtor" AS BIGINT)) AS estimated_restoration_at,
       to_timestamp(CAST("autoEtor" AS BIGINT)) AS automatic_estimate_at,
       to_timestamp(CAST("crewEta" AS BIGINT)) AS crew_expected_at,
       CAST("estCustAffected" AS INT) AS customers, CAST(latitude AS DOUBLE) AS latitude, CAST(longitude AS DOUBLE) AS longitude,
       CAST(n_devices AS INT) AS devices, CAST("hazardFlag" AS INT) AS hazard_flags,
       cause, "crewCurrentStatus" AS crew_status, "regionName" AS region, MAP {{}} AS unparsed
FROM raw;

CREATE TEMP TABLE outages AS
WITH placed AS (
    SELECT *, CASE change WHEN 'D' THEN 2 WHEN 'U' THEN 1 ELSE 0 END AS rank
    FROM updates WHERE outage_day BETWEEN arrival_day - {horizon} AND arrival_day
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY outage_day, outage_number ORDER BY captured_at DESC, rank DESC) AS place,
           min(captured_at) OVER one AS first_seen_at, max(customers) OVER one AS peak_customers, count(*) OVER one AS updates
    FROM placed WINDOW one AS (PARTITION BY outage_day, outage_number)
)
SELECT outage_day, outage_number, started_at, region, cause, crew_status, customers, hazard_flags, latitude, longitude, devices,
       estimated_restoration_at, first_seen_at, captured_at AS last_seen_at,
       CASE WHEN change = 'D' THEN captured_at END AS restored_at, peak_customers, updates
FROM numbered WHERE place = 1 AND outage_day BETWEEN '{first}' AND '{last}';

CREATE TEMP TABLE region_daily AS
WITH timed AS (SELECT *, epoch(restored_at) - epoch(started_at) AS seconds FROM outages), daily AS (
    SELECT outage_day, region, count(*) AS outages, CAST(sum(coalesce(customers, 0)) AS BIGINT) AS customers,
           CAST(sum(coalesce(peak_customers, 0)) AS BIGINT) AS peak_customers, count(restored_at) AS restored,
           count(*) FILTER (cause LIKE '%equipment issue%') / count(*) AS equipment_share,
           count(*) FILTER (cause LIKE '%caused by the weather%') / count(*) AS weather_share,
           count(*) FILTER (cause LIKE '%scheduled maintenance%') / count(*) AS planned_share,
           count(*) FILTER (cause LIKE '%To protect public safety%') / count(*) AS safety_shutoff_share,
           count(*) FILTER (cause LIKE '%Unknown%' OR cause LIKE '%investigating%') / count(*) AS unknown_share,
           CAST(sum(seconds) AS BIGINT) / count(seconds) / 60 AS mean_restoration_minutes,
           max(seconds) / 60 AS max_restoration_minutes
    FROM timed GROUP BY ALL
)
SELECT one.*,
       (SELECT CAST(sum(w.outages) AS BIGINT) FROM daily w
        WHERE w.region = one.region AND w.outage_day BETWEEN one.outage_day - 6 AND one.outage_day) AS outages_7d,
       (SELECT CAST(sum(w.customers) AS BIGINT) FROM daily w
        WHERE w.region = one.region AND w.outage_day BETWEEN one.outage_day - 6 AND one.outage_day) AS customers_7d
FROM daily one;

CREATE TEMP TABLE region_daily_v2 AS
WITH lasting AS (
    SELECT *, epoch(restored_at) - epoch(started_at) AS seconds, coalesce(customers, 0) AS n FROM outages
    WHERE restored_at IS NULL OR epoch(restored_at) - epoch(started_at) > 900
), daily AS (
    SELECT outage_day, region, count(*) AS outages, CAST(sum(n) AS BIGINT) AS customers,
           CAST(sum(coalesce(peak_customers, 0)) AS BIGINT) AS peak_customers, count(restored_at) AS restored,
           coalesce(sum(n) FILTER (cause LIKE '%equipment issue%'), 0) / nullif(sum(n), 0) AS equipment_share,
           coalesce(sum(n) FILTER (cause LIKE '%caused by the weather%'), 0) / nullif(sum(n), 0) AS weather_share,
           coalesce(sum(n) FILTER (cause LIKE '%scheduled maintenance%'), 0) / nullif(sum(n), 0) AS planned_share,
           coalesce(sum(n) FILTER (cause LIKE '%To protect public safety%'), 0) / nullif(sum(n), 0) AS safety_shutoff_share,
           coalesce(sum(n) FILTER (cause LIKE '%Unknown%' OR cause LIKE '%investigating%'), 0) / nullif(sum(n), 0)
               AS unknown_share,
           CAST(sum(seconds * n) AS BIGINT) / nullif(sum(n) FILTER (restored_at IS NOT NULL), 0) / 60
               AS mean_restoration_minutes,
           max(seconds) / 60 AS max_restoration_minutes
    FROM lasting GROUP BY ALL
)
SELECT one.*,
       (SELECT CAST(sum(w.outages) AS BIGINT) FROM daily w
        WHERE w.region = one.region AND w.outage_day BETWEEN one.outage_day - 6 AND one.outage_day) AS outages_7d,
       (SELECT CAST(sum(w.customers) AS BIGINT) FROM daily w
        WHERE w.region = one.region AND w.outage_day BETWEEN one.outage_day - 6 AND one.outage_day) AS customers_7d
FROM daily one;

CREATE TEMP TABLE region_history AS
SELECT CAST(d.day AS DATE) AS outage_day, f.region, CAST(sum(f.outages) AS BIGINT) AS outages_total,
       CAST(sum(f.customers) AS BIGINT) AS customers_total, count(*) AS days_with_outages, min(f.outage_day) AS first_outage_day
FROM generate_series(DATE '{first}', DATE '{last}', INTERVAL 1 DAY) d(day) JOIN region_daily f ON f.outage_day <= d.day
GROUP BY ALL;

CREATE TEMP TABLE late_arrivals AS
WITH lagged AS (SELECT *, epoch(captured_at) - epoch(started_at) AS seconds, arrival_day - outage_day AS days FROM updates)
SELECT arrival_day, outage_day, count(*) AS updates, count(*) FILTER (change = 'I') AS appeared,
       quantile_disc(seconds, 0.5) / 3600 AS median_lag_hours, quantile_disc(seconds, 0.9) / 3600 AS p90_lag_hours,
       max(seconds) / 3600 AS max_lag_hours, count(*) FILTER (days BETWEEN 0 AND 2) AS in_time,
       count(*) FILTER (days BETWEEN 3 AND {horizon}) AS late,
       count(*) FILTER (days IS NULL OR days NOT BETWEEN 0 AND {horizon}) AS outside_horizon
FROM lagged GROUP BY ALL;
