"""The three message formats: reading, checking, preparing and converting batches.

`batch` reads and builds, `prepare` is what a leader does to a produced set, `convert` what a
fetch by an older client needs. `kernels` holds the loops over records: compiled (`_kernels.pyx`)
or its plain Python twin (`kernels_py`). A time is an int of milliseconds, -1 is none, and no
rule about times is made here: bounds and stamps are arguments (KIP-32).
"""
