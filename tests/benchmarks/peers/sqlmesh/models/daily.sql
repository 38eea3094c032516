MODEL (name lake.daily, kind INCREMENTAL_BY_TIME_RANGE (time_column day), cron '@daily');
SELECT day, region, count(*) AS updates, max(customers) AS customers
FROM lake.events
WHERE day BETWEEN @start_ds::DATE AND @end_ds::DATE
GROUP BY day, region
