SELECT
  strptime(parse_filename(filename, true), '%Y-%m-%d')::DATE AS day, number, region, customers
FROM read_csv(
  'landing/events/*.csv',
  filename = true,
  header = true,
  columns = {'number': 'BIGINT', 'region': 'VARCHAR', 'customers': 'BIGINT'}
)
WHERE strptime(parse_filename(filename, true), '%Y-%m-%d')::DATE
  = '{{ model.batch.event_time_start.date() if model.batch else "2019-08-15" }}'
