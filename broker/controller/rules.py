"""The settings of topics on which elections depend, kept from one image to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.eligible_leaders import TopicRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.settings import Settings


class Rules:
    """The rules of topics, read again where the settings of a topic or of the broker change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._defaults: object = None
        self._known: dict[str, tuple[Mapping[str, str], TopicRules]] = {}

    def __call__(self, topic: Topic) -> TopicRules:
        """Returns the settings on which elections of the topic's leaders depend."""
        defaults = self._settings.broker.topic_defaults
        if self._defaults is not defaults:
            self._defaults = defaults
            self._known.clear()
        known = self._known.get(topic.name)
        if known is not None and known[0] is topic.configs:
            return known[1]
        config = self._settings.served(topic)
        rules = TopicRules(config.min_insync_replicas, config.unclean_leader_election_enable)
        self._known[topic.name] = (topic.configs, rules)
        return rules

    def keep_only(self, names: Mapping[str, Topic]) -> None:
        """Keeps only the rules of these topics."""
        if len(self._known) > len(names):
            self._known = {name: known for name, known in self._known.items() if name in names}
