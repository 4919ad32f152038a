"""The settings of a broker, each declared once.

Begin with `settings.py`: every broker setting but those of `cluster.py`, which say which broker
this is and which cluster it belongs to. Rules between settings, and parsers of single ones, are in
`checks.py`; listeners and their addresses in `listeners.py`; the address of etcd that
metadata.store may hold in `etcd_address.py`. The defaults of topics are declared in
`config/topic.py`.
"""
