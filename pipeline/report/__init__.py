"""Reports of the jobs: one page of HTML that needs nothing from the network, and the same numbers as JSON."""
