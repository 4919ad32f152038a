"""The metrics of the broker for Prometheus: each is declared once, in `families/`.

Begin with `family.py`, how a metric is declared. `exposition.py` writes the text of a scrape; only
`collector.py` uses the Prometheus library.
"""
