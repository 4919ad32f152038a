"""The computations of the jobs: arithmetic on columns, without Spark, clocks, files or sockets.

The current time is an argument (`now_ms`). Results do not depend on how a log was split.
"""
