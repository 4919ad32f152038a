"""How the client reaches secured brokers: TLS, SASL, and the settings for both under Kafka's names.

`options.py` declares every setting once. `settings.py` checks given settings and makes a `Security`
of them; `jaas.py` and `stores.py` read what they name, `files.py` a file of settings. `sasl.py` runs
an exchange on a connection, without I/O, by a mechanism of `mechanisms.py` and `scram.py`. `tls.py`
makes TLS contexts, `tokens.py` obtains tokens. `access.py` is what the shells use: begin there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.client.security.access import PLAINTEXT, Access, Brokers, access_to, secured

if TYPE_CHECKING:
    from tidelog.client.security.settings import Security

__all__ = ["PLAINTEXT", "Access", "Brokers", "Security", "access_to", "secured"]


def __getattr__(name: str) -> Any:
    """Imports the settings when they are first asked for: a plaintext connection needs none."""
    if name == "Security":
        from tidelog.client.security.settings import Security

        return Security
    raise AttributeError(f"module {__name__} has no attribute {name}")
