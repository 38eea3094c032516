-- features/restoration_examples, from the tables of oracle.sql: of every outage all captures and all days of its region are
-- looked at. {known_by}: rows that were captured, and days that were final, from then on do not count.

CREATE OR REPLACE TEMP TABLE restoration_examples AS
WITH placed AS (
    SELECT *, CASE change WHEN 'D' THEN 2 WHEN 'U' THEN 1 ELSE 0 END AS rank
    FROM updates WHERE outage_day BETWEEN arrival_day - 14 AND arrival_day AND captured_at < TIMESTAMPTZ '{known_by}'
), asked AS (
    SELECT outage_day, outage_number, arg_min(started_at, captured_at) AS started_at,
           arg_min(started_at, captured_at) + INTERVAL 1 HOUR AS asked_at,
           max((captured_at, rank)) AS last
    FROM placed GROUP BY ALL
), state AS (
    SELECT a.*, p.captured_at, p.change, p.region, p.cause, p.crew_status, p.customers, p.hazard_flags, p.latitude, p.longitude,
           p.devices, p.estimated_restoration_at
    FROM asked a LEFT JOIN placed p ON p.outage_day = a.outage_day AND p.outage_number = a.outage_number
        AND (p.captured_at, p.rank) = (
            SELECT max((q.captured_at, q.rank)) FROM placed q
            WHERE q.outage_day = a.outage_day AND q.outage_number = a.outage_number AND q.captured_at < a.asked_at
        )
), removed AS (
    SELECT a.outage_day, a.outage_number, p.captured_at AS restored_at
    FROM asked a JOIN placed p ON p.outage_day = a.outage_day AND p.outage_number = a.outage_number
        AND (p.captured_at, p.rank) = a.last AND p.change = 'D'
), day_of AS (
    SELECT s.outage_day, s.outage_number, max(r.outage_day) AS day
    FROM state s JOIN region_daily r ON r.region = s.region
    WHERE r.outage_day + 15 < s.asked_at AND r.outage_day + 15 < TIMESTAMPTZ '{known_by}'
        AND r.outage_day + 1 >= s.asked_at - INTERVAL 21 DAY
    GROUP BY ALL
)
SELECT s.* EXCLUDE (last), r.outage_day AS region_day, r.outages AS region_outages, r.customers AS region_customers,
       r.mean_restoration_minutes AS region_mean_restoration_minutes, r.max_restoration_minutes AS region_max_restoration_minutes,
       r.outages_7d AS region_outages_7d, r.customers_7d AS region_customers_7d, removed.restored_at,
       (epoch(removed.restored_at) - epoch(s.started_at)) / 60 AS restoration_minutes
FROM state s LEFT JOIN removed USING (outage_day, outage_number) LEFT JOIN day_of d USING (outage_day, outage_number)
LEFT JOIN region_daily r ON r.region = s.region AND r.outage_day = d.day;
