"""Where the pipeline reads from: log directories, ours and Apache Kafka's, and brokers.

`splits` plans what is read, `reading` reads it into columns, `timelog` hands both to Spark.
"""
