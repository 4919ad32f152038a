"""Every topic and broker setting, declared once, and how their sources are merged.

`load` reads a broker's settings from a properties file, KAFKA_* environment variables and flags;
`topic_config` applies a topic's own settings over them; `topic_entries` and `broker_entries`
describe both. Every error is a ConfigError of one sentence. Begin with `setting.py`, which says how
a setting is declared; `environment.py` reads KAFKA_* names, `properties.py` files.
"""

from config.broker import BROKER_SETTINGS, BrokerConfig
from config.describe import Entry, Source, Synonym, broker_entries, topic_entries
from config.listeners import Listener
from config.load import load, reconfigured, topic_config
from config.setting import ConfigError, Setting, Type
from config.topic import TOPIC_SETTINGS, TopicConfig
from config.unenforced import unenforced

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "ConfigError",
    "Entry",
    "Listener",
    "Setting",
    "Source",
    "Synonym",
    "TopicConfig",
    "Type",
    "broker_entries",
    "load",
    "reconfigured",
    "topic_config",
    "topic_entries",
    "unenforced",
]
