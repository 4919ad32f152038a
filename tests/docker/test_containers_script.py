"""docker/containers.sh, where there is nothing to run it with, and where it is called wrongly."""

from __future__ import annotations

import os
import re
import stat

import pytest

from tests.docker.engine import SCRIPT, run
from tidelog import __version__

# A client whose engine runs, and that does nothing else.
FAKE = '#!/bin/sh\n[ "$1" = info ] && exit 0\necho "$0 $*" >&2\nexit 3\n'


def fake(directory, name, text=FAKE):
    file = directory / name
    file.write_text(text, encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{directory}:{os.environ['PATH']}", "ENGINE": name}


def test_without_an_engine_it_says_so_in_one_sentence():
    told = run(SCRIPT, "image", environ={"ENGINE": "no-such-engine"}, status=1)
    assert told.startswith("neither docker nor podman runs here: ")
    assert told.count("\n") == 1


def test_a_client_without_its_engine_is_none(tmp_path):
    environ = fake(tmp_path, "docker", '#!/bin/sh\n[ "$1" = --version ]\n')
    told = run(SCRIPT, "up", environ=environ, status=1)
    assert told.startswith("neither docker nor podman runs here: ")


def test_docker_without_compose_is_told(tmp_path):
    told = run(SCRIPT, "up", environ=fake(tmp_path, "docker"), status=1)
    assert "docker has no compose plugin" in told


def test_a_failed_build_fails(tmp_path):
    environ = {**fake(tmp_path, "docker"), "TIDELOG_IMAGE": "some:tag", "PYTHON_IMAGE": "other:1"}
    told = run(SCRIPT, "image", environ=environ, status=3)
    assert re.search(
        rf"build --build-arg PYTHON_IMAGE=other:1 --build-arg VERSION={re.escape(__version__)} "
        r"--build-arg COMMIT=([0-9a-f]{40}(-dirty)?)? -f docker/Dockerfile -t some:tag \.\n",
        told,
    ), told


@pytest.mark.parametrize("image", ["some", "some:tag", "host:5000/some", "host:5000/some:tag"])
def test_a_version_is_a_second_tag(tmp_path, image):
    environ = {**fake(tmp_path, "docker"), "TIDELOG_IMAGE": image, "VERSION": f"{__version__}-rc1"}
    told = run(SCRIPT, "image", environ=environ, status=3)
    assert f"--build-arg VERSION={__version__}-rc1 " in told
    assert f" -t {image} -t {image.removesuffix(':tag')}:{__version__}-rc1 .\n" in told


def test_a_version_that_the_sources_do_not_have_is_refused(tmp_path):
    environ = {**fake(tmp_path, "docker"), "VERSION": "99.1"}
    told = run(SCRIPT, "image", environ=environ, status=1)
    assert told == f"VERSION=99.1: these sources are {__version__}\n"


def test_a_wrong_word_is_told(tmp_path):
    told = run(SCRIPT, "start", environ=fake(tmp_path, "docker"), status=1)
    assert told == "containers.sh: expected image, up, down, cluster-up or cluster-down\n"
