"""What the broker counts, and how Prometheus reads it.

`counters.py` holds plain ints that handlers add to. Each metric is declared once, in one of
`*_metrics.py`; `collector.py` alone knows the Prometheus library.
"""
