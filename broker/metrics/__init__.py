"""What the broker counts, and how Prometheus reads it.

`counters.py` holds plain numbers that handlers add to. Each metric is declared once, in
`families/`; only `collector.py` uses the Prometheus library.
"""
