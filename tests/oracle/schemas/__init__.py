"""Kafka's declarations (Apache Kafka 3.9) of the messages that kafka-python does not have."""
