"""kafka: the days of a Kafka topic, by the timestamps of its records.

Does not decode keys and values: they are bytes.
Read `source.py` first.
"""
