"""What the broker counts: plain numbers that the rooms above add to.

Begin with `counters.py`. The metrics that Prometheus reads are declared in `broker/http/metrics`.
"""
