"""The script for spark-submit: `spark-submit [its options] submit.py JOB [options]`.

It is for masters that start the driver elsewhere (`--deploy-mode cluster`). `tidelog pipeline JOB`
needs no spark-submit, because PySpark runs it. spark-submit puts the directory of this file on
sys.path, where the modules of the pipeline would shadow others of the same name. So the script
removes it before it imports anything.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Runs the job with the tidelog that is installed, or that of this checkout."""
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != HERE]
    import importlib

    try:
        house = importlib.import_module("tidelog._house")
    except ModuleNotFoundError:
        sys.path.append(str(HERE.parents[0]))
        house = importlib.import_module("tidelog._house")
    return int(house.room("pipeline.cli").main())


if __name__ == "__main__":
    sys.exit(main())
