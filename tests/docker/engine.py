"""The container engine of the tests: docker or podman, whichever runs here, and the images they need.

What is built on and what is run beside the broker are official images, unless PYTHON_IMAGE, ETCD_IMAGE
and PROMETHEUS_IMAGE name others. Where etcd's or Prometheus' cannot be pulled, Debian's is put on top of
the image for Python, if its packages can be had. What cannot be had is said in one sentence, as a reason
to skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docker" / "containers.sh"
OFFICIAL = {
    "PYTHON_IMAGE": "docker.io/library/python:3.11-slim-bookworm",
    "PROMETHEUS_IMAGE": "docker.io/prom/prometheus:v3.5.0",
    "ETCD_IMAGE": "quay.io/coreos/etcd:v3.6.9",
}
# Where an official image cannot be pulled, a stand-in of this name may lie in the engine's own store.
STAND_INS = {
    "PYTHON_IMAGE": "localhost/python:3.11-slim-bookworm",
    "PROMETHEUS_IMAGE": "localhost/prometheus:debian",
    "ETCD_IMAGE": "localhost/etcd:debian",
}
# What a stand-in is built from, where it is not there.
RECIPES = {
    "PROMETHEUS_IMAGE": Path(__file__).parent / "stand_ins" / "prometheus.Dockerfile",
    "ETCD_IMAGE": Path(__file__).parent / "stand_ins" / "etcd.Dockerfile",
}
PULL_WITHIN_S = 120
BUILD_WITHIN_S = 600


def run(*command, environ=None, within_s=600, status=0):
    """Run a command to its end and return what it printed, both streams; `status` is what it must be."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
        env={**os.environ, **(environ or {})},
    )
    assert status is None or done.returncode == status, (
        f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    )
    return done.stdout + done.stderr


def succeeds(*command, within_s=60):
    """Whether a command can be run, and ends with 0."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=within_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@cache
def name():
    """Docker or podman; None where neither runs."""
    for engine in ("docker", "podman"):
        if shutil.which(engine) and succeeds(engine, "info"):
            return engine
    return None


@cache
def image(variable):
    """The image to use: here already, pulled, or a stand-in that is built; None where it cannot be had."""
    for candidate in (os.environ.get(variable), OFFICIAL[variable], STAND_INS[variable]):
        if candidate and succeeds(name(), "image", "inspect", candidate):
            return candidate
    wanted = os.environ.get(variable) or OFFICIAL[variable]
    if succeeds(name(), "pull", wanted, within_s=PULL_WITHIN_S):
        return wanted
    return _stand_in(variable)


def _stand_in(variable):
    base = None if variable not in RECIPES else image("PYTHON_IMAGE")
    if base is None or os.environ.get(variable):
        return None
    recipe = RECIPES[variable]
    words = (name(), "build", "--network", "host", "--build-arg", f"PYTHON_IMAGE={base}")
    words += ("-f", str(recipe), "-t", STAND_INS[variable], str(recipe.parent))
    return STAND_INS[variable] if succeeds(*words, within_s=BUILD_WITHIN_S) else None


def inspect(kind, what):
    return json.loads(run(name(), kind, "inspect", what))[0]


def has_compose():
    if name() == "podman":
        return shutil.which("podman-compose") is not None
    return succeeds("docker", "compose", "version")
