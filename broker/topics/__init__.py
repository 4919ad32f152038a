"""Topics: what changes them, and how the local logs follow."""
