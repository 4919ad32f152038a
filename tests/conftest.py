"""What all tests have in common: property tests are judged by what they find, not by how long it took.

Where CI is set in the environment, Hypothesis tries the same examples in every run; elsewhere new ones.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "whatever the load",
    settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]),
)
settings.load_profile("whatever the load")
