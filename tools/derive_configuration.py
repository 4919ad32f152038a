"""Writes docs/configuration.md from the declarations in config/.

`python tools/derive_configuration.py` writes the page. With `--check` it writes nothing and exits
with status 1 if the page is stale. The first part of the page is text in this file. Every table
comes from the declarations, so the page cannot name a setting that does not exist.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tidelog.config import BROKER_SETTINGS, TOPIC_SETTINGS
from tidelog.config.ignored import (
    IGNORED_BROKER_NAMES,
    IGNORED_PREFIXES,
    IGNORED_TOPIC_NAMES,
)
from tidelog.config.setting import INT_MAX, LONG_MAX, Type
from tidelog.config.unserved import CONSEQUENCES
from tools.derived import write_or_check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.config import Setting

PAGE = ROOT / "docs" / "configuration.md"

_HEAD = """\
# Configuration

This page is derived from the declarations in `config/` by `make derive`; do not edit it.

## Where settings come from

A broker reads its settings from four places. A later one wins over an earlier one, whatever names
the setting was given under:

1. the defaults below;
2. a properties file in Java's syntax, `tidelog serve --config server.properties`: one written for
   Apache Kafka is taken as it is;
3. environment variables as Kafka's container images spell them: `KAFKA_LOG_RETENTION_MS` is
   `log.retention.ms`; `_` stands for a dot, `__` for an underscore, `___` for a dash;
4. the command line: `--set log.retention.ms=60000`, as often as needed. `--listeners`, `--log-dirs`,
   `--http`, `--control`, `--clock` and `--clock-scope` are short for `listeners`, `log.dirs`,
   `http.listener`, `control.listener`, `clock` and `clock.scope`; `--clock-start TIME` gives
   `clock.start.ms` as people write times.

Settings marked *dynamic* can also be changed while the broker runs (IncrementalAlterConfigs); such a
change is kept with the metadata and wins over all of these. Clients cannot set a limit of connections so low
that nobody could undo it ([limits.md](limits.md#connections)), nor what is no setting. What is stored and
cannot be used, because an older tidelog has taken it, is left out: a warning names it, clients can remove
it, and so can `tidelog configs remove` without a broker ([commandline.md](commandline.md#without-a-broker)).

A topic's own setting always wins over the broker's. The column *broker default* names the broker
settings a topic setting starts from; among several in one place, the first that is set wins, so
`log.retention.ms` over `log.retention.minutes` over `log.retention.hours`. A symmetric time window of
a topic's own also replaces a one-sided window of the broker's.

Two names of one setting with different values in one place contradict each other and are refused. So are
a misspelt name (the sentence names the closest one), a value of the wrong type, and one out of range;
`tidelog serve` then says so in one sentence and exits with status 2. A `KAFKA_` variable that
resembles no setting is taken for somebody else's: its name is logged, and it is passed over.

*Not yet* in a table means: the setting is accepted, kept and described to clients, and nothing acts on
it so far. The lists at the end name Kafka's settings that are accepted and mean nothing here; the
broker logs one line for each that is set.
"""


def page() -> str:
    """Returns the whole page."""
    topics = "\n".join(_topic_row(setting) for setting in TOPIC_SETTINGS.values())
    brokers = "\n".join(_broker_row(setting) for setting in BROKER_SETTINGS.values())
    prefixes = ", ".join(f"`{prefix}*`" for prefix in IGNORED_PREFIXES)
    unserved = "\n".join(_row((f"`{name}`", what)) for name, what in CONSEQUENCES.items())
    families = tuple(name.removesuffix("*") for name in CONSEQUENCES if name.endswith("*"))
    ignored = [
        name
        for name in IGNORED_BROKER_NAMES
        if name not in CONSEQUENCES and not name.startswith(families)
    ]
    return f"""{_HEAD}
## Topic settings

Every one of them is dynamic.

| setting | type | default | values | broker default | meaning |
|---|---|---|---|---|---|
{topics}

## Broker settings

Beside the broker defaults in the table above:

| setting | type | default | values | dynamic | meaning |
|---|---|---|---|---|---|
{brokers}

## Accepted and ignored

Broker settings of Apache Kafka 3.9 to 4.4; also whatever begins with {prefixes}, unless it is
[refused](#refused):

{_wrapped(ignored)}

Topic settings:

{_wrapped(IGNORED_TOPIC_NAMES)}

The start logs a line for each that is set; what may be a secret is shown as `(hidden)`.

## Refused

These promise safety that a broker here does not have. One that is set, to more than nothing or Kafka's
default, stops the start with a sentence, and clients cannot set it; so does one for a listener
(`listener.name.*`), but for those of `controller.listener.names`, which are not bound:

| setting | what would stay open |
|---|---|
{unserved}
"""


def _topic_row(setting: Setting) -> str:
    assert setting.dynamic, setting.name
    names = [name.name for name in setting.broker_names] + [
        alias
        for alias in setting.broker_aliases
        if alias not in {name.name for name in setting.broker_names}
    ]
    cells = (
        _names(setting.names),
        setting.type.name,
        _default(setting),
        _values(setting),
        _names(names),
        _meaning(setting),
    )
    return _row(cells)


def _broker_row(setting: Setting) -> str:
    cells = (
        _names(setting.names),
        setting.type.name,
        _default(setting),
        _values(setting),
        "yes" if setting.dynamic else "no",
        _meaning(setting),
    )
    return _row(cells)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _default(setting: Setting) -> str:
    if not setting.default:
        return "none"
    if setting.default in (str(LONG_MAX), str(INT_MAX)) and setting.low is not None:
        return f"{setting.default} (no limit)"
    return f"`{setting.default}`" if setting.type in (Type.STRING, Type.LIST) else setting.default


def _values(setting: Setting) -> str:
    if setting.choices:
        return _names(setting.choices)
    if setting.low is not None and setting.high is not None:
        return f"{setting.low} to {setting.high}"
    return "" if setting.low is None else f"{setting.low} or more"


def _meaning(setting: Setting) -> str:
    return setting.doc if setting.effective else f"*Not yet.* {setting.doc}"


def _wrapped(names: Iterable[str]) -> str:
    return textwrap.fill(
        ", ".join(f"`{name}`" for name in sorted(names)),
        width=110,
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
