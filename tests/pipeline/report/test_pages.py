"""Pages in a real browser: nothing is wider than its window, and nothing is loaded."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

pytest.importorskip("jinja2")

from tidelog.jobs.results import Result
from tidelog.pipeline.report import page
from tidelog.pipeline.report.page import Cell, Heading, KeyFigures, ReportFinding
from tidelog.pipeline.report.plots import Axis, Line, Plot, Rows, Style

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("table, svg, p, li, dl")]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName);
  document.title = `measured ${innerWidth} ${document.documentElement.scrollWidth} [${wide}]`;
})</script>"""


def two(caption, head, *rows):
    """A table of two columns."""
    columns = {head: lambda row: row[0], "numbers": lambda row: Cell(row[1], True)}
    return page.table(caption, rows, columns)


def sample(*more):
    """A page with long names and many columns, and what is given."""
    long = "a-policy.with.a.very-long-name_" * 4
    cells = [long, *["2026-11-23 03:26"] * 7, "retention.max.eventtime.ms, retention.ms", "9" * 20]
    heads = ["policy", *(f"what column {n} deletes" for n in range(9))]
    columns = {head: lambda row, n=n: row[n] for n, head in enumerate(heads)}
    return page.html(
        "A <title>",
        long,
        [ReportFinding("ok", "t", "good", "text"), ReportFinding("bad", long, long, long)],
        [
            KeyFigures([("records", "1,000,000,000,000")] * 5),
            *(Heading(f"{long} {n}") for n in range(3)),
            page.table("A wide one.", [cells] * 3, columns),
            long,
            *more,
        ],
    )


def test_a_page_escapes_what_stands_in_it():
    text = sample("<p1>", Heading("<h>"), two("<i>", "<u>", ("<s>", "<b>")))
    for tag in ("<p1>", "<h>", "<i>", "<u>", "<s>", "<b>1", "<title>A <"):
        assert tag not in text
    assert "&lt;s&gt;" in text


def test_the_worst_findings_come_first():
    assert re.findall(r'<li class="(.*?)"', sample()) == ["bad", "ok"]


def test_a_table_that_is_cut_says_so():
    rows = [str(n) for n in range(5)]
    found = page.table("Some.", rows, {"name": str}, most=3)
    assert found.caption == "Some. The first 3 of 5; all in report.json."
    assert [cells[0].text for cells in found.rows] == ["0", "1", "2"]
    assert page.table("All.", rows, {"name": str}, most=5).caption == "All."


def test_a_page_loads_nothing():
    text = sample()
    assert not re.search(r"<script|<link|@import|url\((?!#)|src=|https?:", text)


def test_every_cell_says_the_head_of_its_column():
    text = page.html("t", "s", [], [two("t", "a", ("x", "1"))])
    assert re.findall(r'data-head="(.*?)"', text) == ["numbers"]


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("width", [500, 700, 1000, 1400])
def test_nothing_is_wider_than_its_window(width, tmp_path):
    found = measured(sample().replace("</head>", f"{MEASURE}</head>"), width, tmp_path)
    found = re.match(r"(\d+) (\d+) \[(.*)\]", found)
    assert found[3] == ""
    assert int(found[2]) <= int(found[1]) == width


OUTSIDE = """<script>addEventListener("load", () => {
  const texts = [...document.querySelectorAll("svg text")].filter(e => e.getClientRects().length);
  const outside = texts.filter(e => {
    const inner = e.getBoundingClientRect(), outer = e.closest("svg").getBoundingClientRect();
    return inner.left < outer.left - 1 || inner.right > outer.right + 1
      || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
  });
  document.title = `measured ${texts.length} [${outside.map(e => e.textContent)}]`;
})</script>"""


def plotted():
    """A plot whose names are long at every side, and one of rows."""
    spans = [(float(at), f"{at:,.0f} milliseconds") for at in (1, 100_000_000)]
    shares = [(at, f"{at:.6f} %") for at in (0.0, 50.0, 100.0)]
    line = Line("a line", Style(1), [(1.0, 0.0), (1e8, 100.0)])
    plot = Plot("p", "s", Axis(1, 1e8, spans, "x" * 20, is_log=True), Axis(0, 100, shares, "y"))
    rows = [(f"partition {n}", 0.1 * n, f"{10 * n:.9f} %") for n in range(1, 11)]
    return [plot._replace(lines=[line]), Rows("r", "s", rows)]


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("width", [500, 1000])
def test_the_names_of_a_plot_lie_within_it(width, tmp_path):
    text = sample(*plotted()).replace("</head>", f"{OUTSIDE}</head>")
    assert measured(text, width, tmp_path) == "27 []"


FRAMED = """<!doctype html><title></title><body>{}<script>addEventListener("load", () => {{
  const frame = document.querySelector("iframe");
  const inner = frame.contentDocument.documentElement;
  const scripts = frame.contentWindow.ran === undefined;
  document.title = `measured ${{frame.clientHeight}} ${{inner.scrollHeight}} ${{scripts}}`;
}})</script>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("rows", [1, 200])
def test_a_frame_in_a_notebook_is_as_high_as_its_page(rows, tmp_path):
    table = two("t", "a", *[("x", "1")] * rows)
    text = sample(table).replace("</head>", "<script>ran = true</script></head>")
    result = Result("mirror", "r", 0, tmp_path, {}, "text", lambda: text)
    found = measured(FRAMED.format(result._repr_html_()), 1000, tmp_path)
    height, content, is_still = found.split()
    assert int(height) == int(content)
    assert int(height) > 4000 if rows == 200 else 300 < int(height) < 4000
    assert is_still == "true", "a script ran in the frame"


def measured(text, width, tmp_path):
    """What the browser has put behind "measured" in the title of a page."""
    (tmp_path / "page.html").write_text(text)
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
    found = re.search(r"<title>measured (.*?)</title>", done.stdout)
    assert found is not None, done.stderr[-2000:]
    return found[1]
