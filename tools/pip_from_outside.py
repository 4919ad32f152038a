"""Runs the pip that comes with this Python on an environment: `pip_from_outside.py --python ENVIRONMENT ...`.

The environment needs no pip of its own: a broker has no use for one.
"""

import ensurepip
import runpy
import sys
import sysconfig
from pathlib import Path

# Distributions such as Debian keep the wheel elsewhere (the option --with-wheel-pkg-dir of Python's build).
wheel_dir = sysconfig.get_config_var("WHEEL_PKG_DIR") or "/usr/share/python-wheels"
bundled = Path(ensurepip.__file__).parent / "_bundled"
wheels = [*bundled.glob("pip-*.whl"), *Path(wheel_dir).glob("pip-*.whl")]
sys.path.insert(0, str(wheels[0]))
runpy.run_module("pip", run_name="__main__")
