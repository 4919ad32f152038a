"""Jobs on Spark that keep time: read, audit, archive, mirror and backfill logs.

They share `protocol` and `storage` with the broker and talk to brokers over the wire; importing this
package imports neither PySpark nor pyarrow.
"""
