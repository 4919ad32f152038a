"""Reports of the jobs: one HTML page that loads nothing, and the same figures as JSON."""
