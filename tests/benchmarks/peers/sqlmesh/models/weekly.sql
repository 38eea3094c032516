MODEL (
  name lake.weekly,
  kind INCREMENTAL_BY_TIME_RANGE (time_column day, lookback 6),
  cron '@daily'
);
SELECT days.day, daily.region, sum(daily.updates) AS updates, max(daily.customers) AS customers
FROM (
  SELECT DISTINCT day FROM lake.daily WHERE day BETWEEN @start_ds::DATE AND @end_ds::DATE
) AS days
JOIN lake.daily AS daily ON daily.day BETWEEN days.day - 6 AND days.day
GROUP BY days.day, daily.region
