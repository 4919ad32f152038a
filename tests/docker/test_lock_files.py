"""The lock files of the image: what pyproject.toml asks for is there, in one version each, with hashes."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docker.engine import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ASKED = {
    "build.lock": PROJECT["build-system"]["requires"],
    "requirements.lock": [
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["etcd"],
    ],
}


def joined(name):
    """The lines of a file below docker/, with those that are continued."""
    return (ROOT / "docker" / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("name", ASKED)
def test_it_has_what_is_asked_for(name):
    lines = joined(name)
    versions = {}
    for line in lines:
        if found := re.match(r"([A-Za-z0-9._-]+)==(\S+) ", line):
            assert re.search(r" --hash=sha256:[0-9a-f]{64}\b", line), line[:80]
            versions[canonicalize_name(found[1])] = found[2]
        else:
            assert line.strip()[:1] in ("", "#"), line[:80]
    for each in map(Requirement, ASKED[name]):
        assert each.specifier.contains(versions[canonicalize_name(each.name)]), each
    assert not any("://" in line for line in lines), "where packages are differs by machine"


def test_the_image_installs_nothing_else():
    commands = re.split("&&|RUN", "\n".join(joined("Dockerfile")))
    installs = [each for each in commands if re.search(r"/pip/bin/pip .*\b(install|wheel) ", each)]
    assert len(installs) == 4
    for each in installs:
        assert "--require-hashes" in each or "--no-index" in each, each
