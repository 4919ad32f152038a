"""What tests may ask of a running broker: a manual clock, faults, rounds on demand.

Nothing here is imported unless a control listener is set at start. Begin with `control.py`.
"""
