"""Controls of a running broker for tests: manual clock, injected faults, rounds on demand.

Nothing here is imported unless a control listener is set at start. Begin with `control.py`, the
listener. `faults.py` stores the faults; `fault_storage.py` and `fault_requests.py` inject them;
`cuts.py` makes network partitions. The manual clock is in `broker/clock.py`.
"""
