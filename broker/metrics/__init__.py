"""The broker's counters: plain numbers that the rooms above increase.

Begin with `counters.py`. The metrics that Prometheus reads are declared in `broker/http/metrics`.
"""
