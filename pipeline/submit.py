"""The script for spark-submit: `spark-submit [its options] submit.py JOB [options]`.

It is for masters that start the driver elsewhere (`--deploy-mode cluster`). `tidelog pipeline JOB`
needs no spark-submit, because PySpark runs it. spark-submit puts the directory of this file on
sys.path, where the modules of the pipeline would shadow others of the same name. So the script
removes it before it imports anything.

spark-submit copies both standard output and standard error of a Python program to its own standard
output. So what the job writes to standard error (progress, and the sentence of a failure) goes
through Spark's JVM, whose standard error is that of spark-submit.
"""

import importlib.util
import io
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


class ErrorOfSpark(io.TextIOBase):
    """Standard error of the JVM that spark-submit has started; without one, of this process."""

    def write(self, text: str) -> int:
        """Writes text at once."""
        try:
            from pyspark import SparkContext

            getattr(SparkContext, "_ensure_initialized")()  # noqa: B009 - connects to the JVM
            getattr(SparkContext, "_jvm").System.err.print(text)  # noqa: B009
        except Exception:  # noqa: BLE001 - what is said must not be lost, nor end the job
            assert sys.__stderr__ is not None
            sys.__stderr__.write(text)
        return len(text)


def run() -> int:
    """Runs the job with the tidelog that is installed, or that of this checkout."""
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != HERE]
    if importlib.util.find_spec("tidelog") is None:
        sys.path.append(str(HERE.parents[0]))
    from tidelog.pipeline.cli import main
    from tidelog.pipeline.spark_start import is_submitted

    if is_submitted():
        sys.stderr = ErrorOfSpark()
    return main()


if __name__ == "__main__":
    sys.exit(run())
