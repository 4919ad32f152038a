"""Pages in a real browser: nothing is wider than its window, and nothing is loaded."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

pytest.importorskip("matplotlib")

from pipeline.report import page
from pipeline.report.page import Cell, Finding, Table

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("table, svg, p, li, dl")]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName);
  document.title = `measured ${innerWidth} ${document.documentElement.scrollWidth} [${wide}]`;
})</script>"""


def sample(**more):
    """A page with long names and many columns."""
    long = "a-policy.with.a.very-long-name_" * 4
    wide = page.table(
        "A wide one.",
        ["policy", *(f"what column {n} deletes" for n in range(9))],
        [[long, *["2026-11-23 03:26"] * 7, "retention.max.eventtime.ms, retention.ms", "9" * 20]]
        * 3,
    )
    narrow = page.table("A narrow one.", ["a", "b", "c"], [["x", Cell("1", True), "2"]] * 2)
    values = {
        "title": "A <title>",
        "subtitle": long,
        "findings": [Finding("bad", long, long, long), Finding("ok", "t", "good", "text")],
        "numbers": [("records", "1,000,000,000,000")] * 5,
        "partitions": wide,
    }
    return page.render("replay.html", **values | {"narrow": narrow} | more)


def test_a_page_escapes_what_stands_in_it():
    text = sample(partitions=page.table("<i>", ("<u>", "<q>"), [("<s>", "<b>")]))
    for tag in ("<i>", "<u>", "<q>", "<s>", "<title>A <"):
        assert tag not in text
    assert "&lt;s&gt;" in text


def test_a_page_loads_nothing():
    text = sample()
    assert not re.search(r"<script|<link|@import|url\((?!#)|src=|https?:", text)


def test_a_row_without_a_cell_is_an_error():
    with pytest.raises(ValueError, match="has not 2 cells"):
        page.table("t", ("a", "b"), [("1",)])


def test_every_cell_says_the_head_of_its_column():
    text = sample(partitions=page.table("t", ("a", "b", "c"), [("x", "1", "2")]))
    assert re.findall(r'data-head="(.*?)"', text) == ["b", "c"]
    assert isinstance(page.table("t", ("a",), []), Table)


@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("width", [500, 700, 1000, 1400])
def test_nothing_is_wider_than_its_window(width, tmp_path):
    (tmp_path / "page.html").write_text(sample().replace("</head>", f"{MEASURE}</head>"))
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--user-data-dir={tmp_path}/profile", f"--window-size={width},900", "--dump-dom"),
            f"file://{tmp_path}/page.html",
        ],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    found = re.search(r"<title>measured (\d+) (\d+) \[(.*)\]", done.stdout)
    assert found is not None, done.stderr[-2000:]
    assert found[3] == ""
    assert int(found[2]) <= int(found[1]) == width
