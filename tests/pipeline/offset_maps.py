"""Looks single offsets up in a map of offsets; jobs look many up at once."""


def target_offset_of(runs, source_offset):
    """The target offset of the first record at or after a source offset, or None."""
    ends = ((run, run.source_offset + run.count) for run in runs)
    run = next((run for run, end in ends if end > source_offset), None)
    return None if run is None else run.target_offset + max(0, source_offset - run.source_offset)
