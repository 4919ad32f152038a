"""What the jobs compute: pure arithmetic on columns, without Spark, clock, files or sockets.

A moment is an argument (`now_ms`), and results are the same however a log was split.
"""
