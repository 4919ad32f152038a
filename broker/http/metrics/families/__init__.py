"""Every metric, declared once: its name, meaning and labels, and how its values are read at a scrape.

A file is one subject, and its `FAMILIES` are in the order of docs/metrics.md.
"""
