"""What tests may ask of a running broker: a manual clock, faults, rounds on demand.

Nothing here is imported unless the control listener is asked for at start. Begin with `control.py`.
"""
