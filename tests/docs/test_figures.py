"""Figures of pages that a program of this repository counts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALKS = re.compile(r": (\d+) files, (\d+) hops, (\d+) lines")
ROW = re.compile(r"^\| (?:Produce|Fetch|ListOffsets) v\d+.*\|$", re.MULTILINE)


def test_a_request_passes_as_much_code_as_the_page_says():
    done = subprocess.run(
        [sys.executable, "benchmarks/inside/walks.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    counted = [tuple(map(int, walk)) for walk in WALKS.findall(done.stdout)]
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    section = page.partition("\n## The walk of a request\n")[2].partition("\n## ")[0]
    said = [tuple(map(int, row.split("|")[3:-1:2])) for row in ROW.findall(section)]
    assert len(said) == 3
    for walk, row in zip(counted, said, strict=True):
        assert walk == pytest.approx(row, rel=0.2), "write down what walks.py counts now"
