"""Calls that describe and change settings of topics and brokers. Refusals raise RequestError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client import apis
from tidelog.client.errors import raise_for_code
from tidelog.client.flow import AnyBroker, Call, ControllerTarget, Node
from tidelog.protocol.api import describe_configs, incremental_alter_configs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.client.flow import Target

SOURCE_TOPIC: Final = 1  # the topic itself sets the value
_TOPIC: Final = 2
_BROKER: Final = 4
_SET: Final = 0
_DELETE: Final = 1
_ALL_BROKERS: Final = -1


class Resource(NamedTuple):
    """A topic by its name, a broker by its id, or with neither all brokers."""

    topic: str | None = None
    node_id: int = _ALL_BROKERS

    @property
    def kind(self) -> int:
        """The number of the resource type in the protocol."""
        return _BROKER if self.topic is None else _TOPIC

    @property
    def name(self) -> str:
        """The name of the resource in the protocol."""
        if self.topic is not None:
            return self.topic
        return "" if self.node_id == _ALL_BROKERS else str(self.node_id)

    @property
    def target(self) -> Target:
        """The broker to ask: a broker for its own settings, any broker for others."""
        is_one = self.topic is None and self.node_id != _ALL_BROKERS
        return Node(self.node_id) if is_one else AnyBroker()

    def __str__(self) -> str:
        if self.topic is not None:
            return f"topic {self.topic}"
        return "all brokers" if self.node_id == _ALL_BROKERS else f"broker {self.node_id}"


class Setting(NamedTuple):
    """One setting; `source` is the protocol's number.

    `synonyms` are (name, value, source), best first.
    """

    name: str
    value: str | None
    source: int
    is_read_only: bool
    documentation: str
    synonyms: Sequence[tuple[str, str | None, int]]
    is_sensitive: bool = False  # a secret, whose value the broker does not tell


def describe(
    resource: Resource,
    *,
    names: Sequence[str] | None = None,
    with_synonyms: bool = False,
    with_documentation: bool = False,
) -> Call[list[Setting]]:
    """The settings of a resource that have these names, or with None all, sorted by name.

    A name that the broker does not know is missing from the result.
    """
    asked = describe_configs.DescribeConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configuration_keys=None if names is None else list(names),
    )
    request = describe_configs.DescribeConfigsRequest(
        resources=[asked],
        include_synonyms=with_synonyms,
        include_documentation=with_documentation,
    )

    def read(answer: Any) -> list[Setting]:
        (result,) = answer.results
        raise_for_code(result.error_code, f"settings of {resource}", result.error_message)
        return [
            Setting(
                one.name,
                one.value,
                one.config_source,
                one.read_only,
                one.documentation or "",
                [(each.name, each.value, each.source) for each in one.synonyms],
                one.is_sensitive,
            )
            for one in sorted(result.configs, key=lambda one: str(one.name))
        ]

    return Call(apis.DESCRIBE_CONFIGS, request, resource.target, read)


def alter(
    resource: Resource, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> Call[None]:
    """Changes settings, all or none; the value None removes a setting."""
    asked = incremental_alter_configs.AlterConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configs=[
            incremental_alter_configs.AlterableConfig(
                name=name, config_operation=_DELETE if value is None else _SET, value=value
            )
            for name, value in changes.items()
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[asked], validate_only=validate_only
    )

    def read(answer: Any) -> None:
        (result,) = answer.responses
        raise_for_code(result.error_code, f"changing settings of {resource}", result.error_message)

    target = ControllerTarget() if resource.topic is not None else resource.target
    return Call(apis.INCREMENTAL_ALTER_CONFIGS, request, target, read)
