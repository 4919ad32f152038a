"""A user's program, started by test_masters.py: every job that has tasks, in the program's own session.

It prints one line of JSON: where the application runs, and what each job did.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import tidelog.jobs

root, brokers, topic, *masters = sys.argv[1:]
root = Path(root)
builder = SparkSession.builder.config("spark.ui.enabled", "false")
for master in masters:  # under spark-submit there is none
    builder = builder.master(master).config("spark.driver.host", "127.0.0.1")
spark = builder.getOrCreate()
how = {"spark": spark, "out": root / "runs", "report": "json"}
logs = {"logs": root / "logs", "upto": "log-end"}
target = {"to_brokers": brokers, "create": True}
forever = {"set": {"retention.ms": -1}}
jobs = spark.sparkContext._jsc.sc().statusStore().jobsList  # also without Spark's UI

audit = tidelog.jobs.audit(**logs, at=0, split_bytes="2k", **how)
whatif = tidelog.jobs.whatif(
    logs=root / "logs", policy="a:retention.ms=1", at="2400-01-01T00:00Z", **how
)
archive = tidelog.jobs.archive(**logs, to=root / "archive", **how)
compact = tidelog.jobs.archive_compact(root / "archive", **how)
verify = tidelog.jobs.archive_verify(root / "archive", **how)
restore = tidelog.jobs.restore(
    root / "archive", rename={"t": f"{topic}-restored"}, **target, **forever, **how
)
mirror = tidelog.jobs.mirror(
    brokers=brokers,
    topics=f"{topic}-restored",
    rename={f"{topic}-restored": f"{topic}-mirrored"},
    **target,
    **forever,
    **how,
)
(root / "rows.csv").write_text("when,id\n" + "".join(f"{n},k{n % 3}\n" for n in range(20)))
backfill = tidelog.jobs.backfill(
    table=root / "rows.csv",
    option={"header": True, "inferSchema": True},
    time_column="when",
    time_unit="ms",
    key_column="id",
    without_time="keep",
    topic=f"{topic}-filled",
    **target,
    **forever,
    **how,
)
print(
    json.dumps(
        {
            "master": spark.sparkContext.master,
            "jobs": jobs(None).size(),
            "audit": audit.report["topics"][0]["summary"]["records"],
            "whatif": whatif.topics[0]["records"],
            "archive": archive.records,
            "compact": compact.made < compact.replaced,
            "verify": verify.findings,
            "restore": restore.records,
            "mirror": mirror.records,
            "backfill": backfill.records,
        }
    )
)
spark.stop()
