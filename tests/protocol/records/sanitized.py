"""A pytest plugin that uses the kernels of another build, for `tools/fuzz_kernels.py`.

`TIDELOG_KERNELS_FILE` is the extension module that is loaded in place of the usual one.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import spec_from_file_location

NAME = "tidelog.protocol.records._kernels"
FILE = os.environ["TIDELOG_KERNELS_FILE"]


class _Finder:
    """Finds the kernels where the environment says, and nothing else."""

    def find_spec(self, name, path=None, target=None):
        if name != NAME:
            return None
        return spec_from_file_location(name, FILE, loader=ExtensionFileLoader(name, FILE))


assert NAME not in sys.modules, "other kernels were imported before those to be tested"
sys.meta_path.insert(0, _Finder())


def pytest_collection_finish():
    from tidelog.protocol.records import kernels

    assert kernels.IMPLEMENTATION == "compiled"
    assert sys.modules[NAME].__file__ == FILE


def pytest_report_header():
    return f"kernels: {FILE}"
