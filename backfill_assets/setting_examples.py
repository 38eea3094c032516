"""A value of each setting, as its error message shows one."""

EXAMPLES = {
    "project": "my_module",
    "home": "/data/backfill",
    "lake": "/data/lake or s3a://bucket/lake",
    "landing": "/data/landing or s3://bucket/landing",
    "first_day": "2019-08-15",
    "last_day": "2019-10-13",
    "days_per_run": "100",
    "spark_master": "local[*] or spark://host:7077",
    "spark_remote": "sc://host:15002",
    "spark_conf": '{"spark.executor.memory": "4g"}',
    "spark_jars": "/jars/delta-spark_4.2_2.13-4.4.0.jar,/jars/delta-storage-4.4.0.jar",
    "dagster_url": "http://127.0.0.1:3000",
    "allowed_hosts": "dagster.example.com,localhost:8080",
    "nightly_cron": "30 1 * * *",
    "nightly_late_rows": "false",
    "max_line_bytes": "16777216",
    "protected_days": "2019-01-01..2019-06-30,2019-12-31",
    "ask_above_days": "100",
    "rollback_days": "30",
    "price_per_hour": "0.35",
}
