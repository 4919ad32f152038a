"""Every rule of `storage.time` by its name, for tests that inject a mistake in one.

Rules are imported by name where they are used, so replacing one in its own module would not reach
its callers. `monkeypatch.setattr(time_rules, "aged_from", wrong)` replaces it in every module of
ours that holds it, and puts the right one back at the end of the test.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

from tidelog.storage import time

_HOMES = tuple(
    importlib.import_module(f"tidelog.storage.time.{module.name}")
    for module in pkgutil.iter_modules(time.__path__)
)


_RIGHT = {}  # rules as they were before one was replaced


def _is_at_home(rule, home) -> bool:
    return getattr(rule, "__module__", home.__name__) == home.__name__


class _TimeRules:
    """Reads a rule from its module, and replaces it wherever it was imported."""

    def __getattr__(self, name: str):
        for home in _HOMES:
            if name in vars(home) and _is_at_home(vars(home)[name], home):
                return vars(home)[name]
        if name in _RIGHT:  # replaced
            return next(vars(home)[name] for home in _HOMES if name in vars(home))
        raise AttributeError(f"tidelog.storage.time has no rule {name}")

    def __setattr__(self, name: str, value) -> None:
        now = getattr(self, name)
        _RIGHT.setdefault(name, now)
        for module_name, module in list(sys.modules.items()):
            if module_name.partition(".")[0] == "tidelog" and vars(module).get(name) is now:
                setattr(module, name, value)

    def __delattr__(self, name: str) -> None:
        setattr(self, name, _RIGHT[name])  # how unittest.mock puts the right one back


time_rules = _TimeRules()
