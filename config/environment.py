"""Settings from KAFKA_* environment variables, spelt the way Kafka's container images spell them.

`KAFKA_LOG_RETENTION_MS` is log.retention.ms: after the prefix (KAFKA_, or KAFKA_CFG_ as one family of
images has it), `_` is a dot, `__` an underscore, `___` a dash. Not every KAFKA_ variable is a setting:
images use some for the Java machine, and Kubernetes makes some for a service called kafka. Those are
skipped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX = "KAFKA_"
LONG_PREFIX = "KAFKA_CFG_"

_UNDERSCORES = re.compile(r"_{1,3}")
_SPELLING = {"_": ".", "__": "_", "___": "-"}
# Compiled when there is a variable to look at: most brokers start without any.
_NOT_SETTINGS = r"""KAFKA_(
        (HEAP|JVM_PERFORMANCE|GC_LOG|JMX|DEBUG)_OPTS | OPTS | DEBUG | DEBUG_.* | CLASSPATH
      | JMX_.* | LOG4J_.* | LOG4J2_.* | TOOLS_.* | HOME | VERSION | MODE | SCALA_VERSION
      | KRAFT_CLUSTER_ID | CLUSTER_ID | CREATE_TOPICS | HEALTHCHECK.* | SECRETS_DIR
      | SERVICE_(HOST|PORT.*) | PORT | PORT_[0-9]+_TCP.*
    )"""


def from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yields each setting's name, its text, and the variable it was read from."""
    for variable, value in sorted(environ.items()):
        if variable.startswith(PREFIX) and not re.fullmatch(_NOT_SETTINGS, variable, re.VERBOSE):
            yield setting_name(variable), value, variable


def setting_name(variable: str) -> str:
    """Returns the name of the setting that a KAFKA_ variable means."""
    prefix = LONG_PREFIX if variable.startswith(LONG_PREFIX) else PREFIX
    spelt = _UNDERSCORES.sub(lambda found: _SPELLING[found[0]], variable.removeprefix(prefix))
    return spelt.lower()
