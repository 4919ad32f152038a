"""The only door to the schemas: which APIs there are, their codecs, and the headers around them.

    api = api_of(0)
    request, end = codec(api.request, 9).decode(frame, header.body_offset)
    parts = codec(api.response, 9).encode_parts(response)

Nothing is generated before it is used, and knowing which APIs exist imports no schema: a broker that
has just started has compiled nothing, and a client makes it compile a dozen codecs of a millisecond.
"""

from __future__ import annotations

import sys
from functools import cached_property
from importlib import import_module
from struct import Struct
from struct import error as struct_error
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from protocol.schema import Api, Message, since
from protocol.wire import ZERO_UUID, Buffer, DecodeError, EncodeError, skip_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ZERO_UUID",
    "Api",
    "ApiEntry",
    "Buffer",
    "Codec",
    "DecodeError",
    "EncodeError",
    "Message",
    "RequestHeader",
    "api_of",
    "codec",
    "known_apis",
    "read_request_header",
    "response_header",
    "since",
]

API_VERSIONS: Final = 18


class ApiEntry(NamedTuple):
    """One row of the table of APIs: `module` is the file in protocol/api."""

    key: int
    name: str
    module: str


_APIS: Final[Mapping[int, ApiEntry]] = MappingProxyType(
    {
        entry.key: entry
        for entry in (
            ApiEntry(0, "Produce", "produce"),
            ApiEntry(1, "Fetch", "fetch"),
            ApiEntry(2, "ListOffsets", "list_offsets"),
            ApiEntry(3, "Metadata", "metadata"),
            ApiEntry(8, "OffsetCommit", "offset_commit"),
            ApiEntry(9, "OffsetFetch", "offset_fetch"),
            ApiEntry(10, "FindCoordinator", "find_coordinator"),
            ApiEntry(11, "JoinGroup", "join_group"),
            ApiEntry(12, "Heartbeat", "heartbeat"),
            ApiEntry(13, "LeaveGroup", "leave_group"),
            ApiEntry(14, "SyncGroup", "sync_group"),
            ApiEntry(15, "DescribeGroups", "describe_groups"),
            ApiEntry(16, "ListGroups", "list_groups"),
            ApiEntry(18, "ApiVersions", "api_versions"),
            ApiEntry(19, "CreateTopics", "create_topics"),
            ApiEntry(20, "DeleteTopics", "delete_topics"),
            ApiEntry(21, "DeleteRecords", "delete_records"),
            ApiEntry(22, "InitProducerId", "init_producer_id"),
            ApiEntry(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch"),
            ApiEntry(24, "AddPartitionsToTxn", "add_partitions_to_txn"),
            ApiEntry(26, "EndTxn", "end_txn"),
            ApiEntry(29, "DescribeAcls", "describe_acls"),
            ApiEntry(30, "CreateAcls", "create_acls"),
            ApiEntry(31, "DeleteAcls", "delete_acls"),
            ApiEntry(32, "DescribeConfigs", "describe_configs"),
            ApiEntry(33, "AlterConfigs", "alter_configs"),
            ApiEntry(35, "DescribeLogDirs", "describe_log_dirs"),
            ApiEntry(37, "CreatePartitions", "create_partitions"),
            ApiEntry(42, "DeleteGroups", "delete_groups"),
            ApiEntry(43, "ElectLeaders", "elect_leaders"),
            ApiEntry(44, "IncrementalAlterConfigs", "incremental_alter_configs"),
            ApiEntry(45, "AlterPartitionReassignments", "alter_partition_reassignments"),
            ApiEntry(46, "ListPartitionReassignments", "list_partition_reassignments"),
            ApiEntry(47, "OffsetDelete", "offset_delete"),
            ApiEntry(48, "DescribeClientQuotas", "describe_client_quotas"),
            ApiEntry(50, "DescribeUserScramCredentials", "describe_user_scram_credentials"),
            ApiEntry(60, "DescribeCluster", "describe_cluster"),
            ApiEntry(61, "DescribeProducers", "describe_producers"),
            ApiEntry(65, "DescribeTransactions", "describe_transactions"),
            ApiEntry(66, "ListTransactions", "list_transactions"),
            ApiEntry(75, "DescribeTopicPartitions", "describe_topic_partitions"),
        )
    }
)

_loaded: dict[int, Api] = {}


def known_apis() -> tuple[ApiEntry, ...]:
    """Every API there is a schema for, by ascending key; imports none of them."""
    return tuple(_APIS.values())


def api_of(key: int) -> Api | None:
    """Return the API of a key, importing its schema on first use; None for an unknown key."""
    api = _loaded.get(key)
    if api is not None:
        return api
    entry = _APIS.get(key)
    if entry is None:
        return None
    api = import_module(f"protocol.api.{entry.module}").API
    assert isinstance(api, Api)
    assert (api.key, api.name) == (key, entry.name)
    _loaded[key] = api
    return api


# --- codecs --------------------------------------------------------------------------------------


class Codec:
    """Reads and writes one message in one version; each direction is generated on first use."""

    def __init__(self, cls: type[Message], version: int, *, flexible: bool) -> None:
        self._cls = cls
        self._version = version
        self._flexible = flexible

    @cached_property
    def decode(self) -> Callable[..., tuple[Any, int]]:
        """`decode(buffer, offset=0) -> (message, end)`; raises DecodeError.

        Records are views into `buffer`: they keep it alive and see it change.
        """
        from protocol.decoder import make_decoder

        return make_decoder(self._cls, self._version, flexible=self._flexible)

    @cached_property
    def encode_parts(self) -> Callable[[Any], list[Buffer]]:
        """`encode_parts(message) -> list of buffers`, of which records are not copies.

        The list is new and has at least one element, and its first one is bytes (not records).
        Raises EncodeError.
        """
        from protocol.encoder import make_encoder

        return make_encoder(self._cls, self._version, flexible=self._flexible)

    def encode(self, message: Message) -> bytes:
        """Return the message as bytes; raises EncodeError."""
        return b"".join(self.encode_parts(message))


_codecs: dict[tuple[type[Message], int], Codec] = {}


def codec(cls: type[Message], version: int) -> Codec:
    """Return the codec of a request or response class in a version.

    Raises ValueError for a version outside the API's range.
    """
    known = _codecs.get((cls, version))
    if known is not None:
        return known
    api = sys.modules[cls.__module__].API
    if not api.min_version <= version <= api.max_version:
        raise ValueError(
            f"{api.name} has the versions {api.min_version} to {api.max_version}, not {version}"
        )
    flexible = api.first_flexible is not None and version >= api.first_flexible
    made = _codecs[cls, version] = Codec(cls, version, flexible=flexible)
    return made


# --- headers -------------------------------------------------------------------------------------

_REQUEST_HEAD = Struct(">hhih").unpack_from
_RESPONSE_HEAD = Struct(">i").pack
_FLEXIBLE_RESPONSE_HEAD = Struct(">ix").pack


class RequestHeader(NamedTuple):
    """What precedes every request; its body begins at `body_offset` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a frame (without its length).

    Header version 2, with a tag section, belongs to the flexible versions of an API, and to every version of
    ApiVersions above those known (KIP-511, KIP-482); an unknown API is read as version 1. Raises
    DecodeError.
    """
    try:
        key, version, correlation_id, length = _REQUEST_HEAD(frame)
        end = 10
        client_id = None
        if length >= 0:
            end += length
            if end > len(frame):
                raise DecodeError(f"the client id claims {length} bytes")
            client_id = str(frame[10:end], "utf-8")
        elif length != -1:
            raise DecodeError(f"the client id has the length {length}")
        api = _loaded.get(key) or api_of(key)
        if api is not None and api.first_flexible is not None and version >= api.first_flexible:
            end = end + 1 if frame[end] == 0 else skip_tags(frame, end, len(frame))
    except (struct_error, IndexError):
        raise DecodeError(f"request header: the {len(frame)} bytes end too early") from None
    except DecodeError as error:
        raise DecodeError(f"request header: {error}") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"request header: the client id is not UTF-8: {error.reason}") from None
    return RequestHeader(key, version, correlation_id, client_id, end)


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Return the header of a response.

    Flexible versions add a tag section, always empty here, except for ApiVersions: its client may not
    know yet what the broker speaks (KIP-511).
    """
    api = _loaded.get(api_key) or api_of(api_key)
    if (
        api is None
        or api.first_flexible is None
        or api_version < api.first_flexible
        or api_key == API_VERSIONS
    ):
        return _RESPONSE_HEAD(correlation_id)
    return _FLEXIBLE_RESPONSE_HEAD(correlation_id)
