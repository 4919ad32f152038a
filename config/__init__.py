"""Every topic and broker setting, declared once, and how their sources are merged.

Begin with `setting.py`, which says how a setting is declared. Every error is a ConfigError of one
sentence. The usual questions:
- a topic's settings, such as max.message.bytes and retention.ms: `topic.py`
- the broker's settings, such as auto.create.topics.enable: `broker/settings.py`; which broker this
  is, and of which cluster: `broker/cluster.py`; consumer groups: `broker/groups.py`; replication:
  `broker/replication.py`; addresses: `broker/listeners.py`
- names of environment variables (KAFKA_LOG_DIRS for log.dirs): `environment.py`
- properties files: `properties.py`; which source wins: `load.py`; changes while a broker runs: `live.py`
- format versions (message.format.version): `versions.py`; times as people write them: `instants.py`;
  sizes, and values with a unit: `units.py`
- a second name of a setting: `aliases` at its declaration; two names that disagree: `load.py`
- settings of Kafka that do nothing here: `ignored.py`, logged by `broker/settings.py`; those
  that promise safety and stop the start: `unserved.py`
- rates of throttled replication, and which replicas they hold for: `replication_quota.py`
- what DescribeConfigs shows of them: `describe.py`
Who enforces a setting is found by its field: max_message_bytes leads to protocol/records/prepare.py.
"""

from tidelog.config.broker.listeners import Listener
from tidelog.config.broker.settings import BROKER_SETTINGS, BrokerConfig
from tidelog.config.describe import (
    ONLY_AT_START,
    ConfigEntry,
    ConfigSource,
    Synonym,
    broker_entries,
    live_source,
    topic_entries,
    unused_entries,
)
from tidelog.config.live import reconfigured, usable
from tidelog.config.load import (
    BROKER_ALIASES,
    FOR_ONE_BROKER,
    TOPIC_ALIASES,
    check_formats,
    load,
    stored_as,
    topic_config,
    without_aliases,
)
from tidelog.config.setting import ConfigError, Setting, Type
from tidelog.config.topic import TOPIC_SETTINGS, TopicConfig

__all__ = [
    "BROKER_ALIASES",
    "BROKER_SETTINGS",
    "FOR_ONE_BROKER",
    "ONLY_AT_START",
    "TOPIC_ALIASES",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigError",
    "ConfigSource",
    "Listener",
    "Setting",
    "Synonym",
    "TopicConfig",
    "Type",
    "broker_entries",
    "check_formats",
    "live_source",
    "load",
    "reconfigured",
    "stored_as",
    "topic_config",
    "topic_entries",
    "unused_entries",
    "usable",
    "without_aliases",
]
