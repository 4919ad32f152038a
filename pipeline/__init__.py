"""Spark jobs that keep record times: they read, audit, archive, mirror, restore and backfill logs.

The jobs share `protocol` and `storage` with the broker, and talk to brokers over the network.
Importing this package imports neither PySpark nor pyarrow.
"""
