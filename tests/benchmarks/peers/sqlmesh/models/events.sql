MODEL (
  name lake.events,
  kind INCREMENTAL_BY_TIME_RANGE (time_column day),
  cron '@daily',
  columns (day DATE, number BIGINT, region TEXT, customers BIGINT)
);
SELECT
  strptime(parse_filename(filename, true), '%Y-%m-%d')::DATE AS day, number, region, customers
FROM read_csv(
  'landing/events/*.csv',
  filename = true,
  header = true,
  columns = {'number': 'BIGINT', 'region': 'VARCHAR', 'customers': 'BIGINT'}
)
WHERE strptime(parse_filename(filename, true), '%Y-%m-%d')::DATE
  BETWEEN @start_ds::DATE AND @end_ds::DATE
