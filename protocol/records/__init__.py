"""The three message formats: reading, checking, preparing and converting batches.

Begin with `batch`, which reads and builds batches. `prepare` does what a leader does to a produced
record set. `convert` does what a fetch by an older client needs. `kernels` holds the loops over
records: the compiled module (`_kernels.pyx`), or its twin in plain Python (`kernels_py`). Times are
ints of milliseconds, and -1 means no time. This package makes no rules about times: bounds and
append times are arguments (KIP-32).
"""
