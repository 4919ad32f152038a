"""What tests may ask of a running broker: to move a manual clock, faults, rounds on demand.

Nothing here is imported unless a control listener is set at start. Begin with `control.py`, the
listener. `faults.py` holds the faults that were asked for; `fault_storage.py` and
`fault_requests.py` let them strike. The manual clock is in `broker/clock.py`.
"""
