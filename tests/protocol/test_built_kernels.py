"""Where there is a C compiler the compiled kernels must be there: their absence is silent otherwise."""

import os
import shutil

import pytest

from tidelog.protocol.records import kernels


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler: the twin serves")
@pytest.mark.skipif(os.environ.get("TIDELOG_KERNELS") == "py", reason="the twin was asked for")
def test_the_kernels_are_compiled():
    assert kernels.IMPLEMENTATION == "compiled", "`make setup` builds them"
