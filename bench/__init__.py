"""Measurements against Apache Kafka: `make bench`."""
