"""The versions of Spark that are declared: the extras install them, the page has them, the tests use them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tidelog.pipeline.spark_start import OLDEST_PYSPARK
from tidelog.pipeline.spark_versions import FITTING
from tools import derive_spark_versions

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def allowed(*extras):
    """Returns the rows that these extras together allow, the oldest first."""
    wanted = SpecifierSet()
    for one in (Requirement(text) for extra in extras for text in EXTRAS[extra]):
        wanted &= one.specifier if one.name == "pyspark" else SpecifierSet()
    assert str(wanted)
    return [one for one in FITTING if wanted.contains(f"{one.spark}.9")]


def test_pip_installs_a_pyspark_with_packages():
    """It takes the newest that is allowed."""
    assert set(allowed("spark")[-1].packages) >= {"kafka", "delta"}
    assert set(allowed("spark", "iceberg-spark")[-1].packages) == {"kafka", "iceberg", "delta"}


def test_every_version_that_is_allowed_is_declared():
    assert FITTING[0].spark == ".".join(map(str, OLDEST_PYSPARK))
    wanted = next(one for one in map(Requirement, EXTRAS["spark"]) if one.name == "pyspark")
    versions = [f"4.{minor}" for minor in range(20) if wanted.specifier.contains(f"4.{minor}.9")]
    assert versions == [one.spark for one in allowed("spark")]


def test_packages_are_those_of_their_version():
    for one in FITTING:
        for name, package in one.packages.items():
            _, artifact, release = package.split(":")
            assert artifact.endswith("_2.13")
            assert f"-{one.spark}_" in artifact or f"_{one.spark}_" in artifact or name == "kafka"
            assert name != "kafka" or release.startswith(f"{one.spark}.")


def test_the_page_has_the_declaration():
    assert derive_spark_versions.PAGE.read_text() == derive_spark_versions.page()
    page = derive_spark_versions.PAGE.read_text()
    for one in FITTING:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {one.spark} | "))
        assert row.count("none") == 3 - len(one.packages)
        assert all(f"`{package}`" in row for package in one.packages.values())
