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
    """Makes tidelog's packages importable, from an installation or this checkout; runs the job."""
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != HERE]
    sys.path.append(str(HERE.parents[0]))
    import contextlib
    import importlib

    with contextlib.suppress(ModuleNotFoundError):  # then the packages are beside this one
        importlib.import_module("tidelog._house").open_house()
    from pipeline.cli import main as run_job

    return run_job()


if __name__ == "__main__":
    sys.exit(main())
