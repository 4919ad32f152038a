"""How the event loop gets at partitions: opened in threads, appended to in order, waited for.

Promises that no handler blocks the loop on a file, that appends to one partition keep their order,
and that whoever waits is woken. Begin with `appends.py`.
"""
