"""tidelog: a Kafka-protocol broker whose subject is time.

Importing this package imports nothing else. `tidelog serve` runs a broker. `tidelog.pytest_plugin`
gives brokers to tests, and `tidelog.process` starts one from any Python program.
"""

__version__ = "0.1.0"
