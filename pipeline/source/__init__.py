"""The sources that the pipeline reads: log directories of tidelog and Apache Kafka, and brokers.

`splits` plans what is read, and `reading` reads it into columns. `pipeline/timelog/` gives both to
Spark.
"""
