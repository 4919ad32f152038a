"""The image that the container tests share: built once a session."""

from __future__ import annotations

import pytest

from tests.docker import engine

TAG = "tidelog-test:latest"


@pytest.fixture(scope="session")
def image():
    """The image, built by `make image`'s own script."""
    if engine.name() is None:
        pytest.skip("neither docker nor podman runs here")
    base = engine.image("PYTHON_IMAGE")
    if base is None:
        pytest.skip(
            f"{engine.OFFICIAL['PYTHON_IMAGE']} cannot be pulled; PYTHON_IMAGE names another"
        )
    environ = {"TIDELOG_IMAGE": TAG, "PYTHON_IMAGE": base, "BUILD_OPTIONS": "--network host"}
    told = engine.run(engine.SCRIPT, "image", environ=environ)
    size = engine.inspect("image", TAG)["Size"] - engine.inspect("image", base)["Size"]
    print(f"\n{told.splitlines()[-1]}, {size / 1e6:.0f} MB of it ours, on {base}")
    return TAG
