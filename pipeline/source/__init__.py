"""The sources that the pipeline reads: log directories of tidelog and Apache Kafka, and brokers.

`splits` plans what is read, `reading` reads it into columns, and `timelog` gives both to Spark.
"""
