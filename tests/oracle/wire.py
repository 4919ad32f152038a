"""A raw Kafka client for the oracle tests: frames out, frames in, nothing retried or hidden.

Request bodies and answers go through kafka-python's schemas, never through the broker's own; the
headers and frames are written here. An answer is a plain dict of every field its version has, in
Kafka's snake_case names. An answer that its schema does not consume to the last byte is an error,
and so is a wrong correlation id. A broker that closes the connection instead of answering gives
None, and the next request opens a new one.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import uuid
from typing import TYPE_CHECKING, Any, Self

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_message import ApiMessage

if TYPE_CHECKING:
    from types import TracebackType

CLIENT_ID = "oracle"
ANSWER_TIMEOUT_S = 60  # a process may stand still for a while

_OURS = "tests.oracle.schemas"


class WriteTxnMarkersRequest(ApiMessage, load_json=_OURS):  # type: ignore[misc,call-arg]
    """Key 27, of which kafka-python has later versions alone."""


class WriteTxnMarkersResponse(ApiMessage, load_json=_OURS):  # type: ignore[misc,call-arg]
    """Its answer."""


class UnregisterBrokerRequest(ApiMessage, load_json=_OURS):  # type: ignore[misc,call-arg]
    """Key 64, which kafka-python lacks."""


class UnregisterBrokerResponse(ApiMessage, load_json=_OURS):  # type: ignore[misc,call-arg]
    """Its answer."""


SCHEMAS: dict[str, tuple[Any, Any]] = {
    "Produce": (producer.ProduceRequest, producer.ProduceResponse),
    "InitProducerId": (producer.InitProducerIdRequest, producer.InitProducerIdResponse),
    "AddPartitionsToTxn": (
        producer.AddPartitionsToTxnRequest,
        producer.AddPartitionsToTxnResponse,
    ),
    "AddOffsetsToTxn": (producer.AddOffsetsToTxnRequest, producer.AddOffsetsToTxnResponse),
    "TxnOffsetCommit": (producer.TxnOffsetCommitRequest, producer.TxnOffsetCommitResponse),
    "EndTxn": (producer.EndTxnRequest, producer.EndTxnResponse),
    "WriteTxnMarkers": (WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    "Fetch": (consumer.FetchRequest, consumer.FetchResponse),
    "ListOffsets": (consumer.ListOffsetsRequest, consumer.ListOffsetsResponse),
    "OffsetForLeaderEpoch": (
        consumer.OffsetForLeaderEpochRequest,
        consumer.OffsetForLeaderEpochResponse,
    ),
    "Metadata": (metadata.MetadataRequest, metadata.MetadataResponse),
    "ApiVersions": (metadata.ApiVersionsRequest, metadata.ApiVersionsResponse),
    "FindCoordinator": (metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse),
    "SaslHandshake": (sasl.SaslHandshakeRequest, sasl.SaslHandshakeResponse),
    "SaslAuthenticate": (sasl.SaslAuthenticateRequest, sasl.SaslAuthenticateResponse),
    "OffsetCommit": (consumer.OffsetCommitRequest, consumer.OffsetCommitResponse),
    "OffsetFetch": (consumer.OffsetFetchRequest, consumer.OffsetFetchResponse),
    "JoinGroup": (consumer.JoinGroupRequest, consumer.JoinGroupResponse),
    "Heartbeat": (consumer.HeartbeatRequest, consumer.HeartbeatResponse),
    "LeaveGroup": (consumer.LeaveGroupRequest, consumer.LeaveGroupResponse),
    "SyncGroup": (consumer.SyncGroupRequest, consumer.SyncGroupResponse),
    "DescribeGroups": (admin.DescribeGroupsRequest, admin.DescribeGroupsResponse),
    "DeleteGroups": (admin.DeleteGroupsRequest, admin.DeleteGroupsResponse),
    "OffsetDelete": (consumer.OffsetDeleteRequest, consumer.OffsetDeleteResponse),
    "CreateTopics": (admin.CreateTopicsRequest, admin.CreateTopicsResponse),
    "DeleteRecords": (admin.DeleteRecordsRequest, admin.DeleteRecordsResponse),
    "DeleteTopics": (admin.DeleteTopicsRequest, admin.DeleteTopicsResponse),
    "DescribeConfigs": (admin.DescribeConfigsRequest, admin.DescribeConfigsResponse),
    "IncrementalAlterConfigs": (
        admin.IncrementalAlterConfigsRequest,
        admin.IncrementalAlterConfigsResponse,
    ),
    "AlterConfigs": (admin.AlterConfigsRequest, admin.AlterConfigsResponse),
    "CreatePartitions": (admin.CreatePartitionsRequest, admin.CreatePartitionsResponse),
    "DescribeCluster": (admin.DescribeClusterRequest, admin.DescribeClusterResponse),
    "DescribeLogDirs": (admin.DescribeLogDirsRequest, admin.DescribeLogDirsResponse),
    "DescribeTopicPartitions": (
        admin.DescribeTopicPartitionsRequest,
        admin.DescribeTopicPartitionsResponse,
    ),
    "DescribeProducers": (admin.DescribeProducersRequest, admin.DescribeProducersResponse),
    "ElectLeaders": (admin.ElectLeadersRequest, admin.ElectLeadersResponse),
    "AlterPartitionReassignments": (
        admin.AlterPartitionReassignmentsRequest,
        admin.AlterPartitionReassignmentsResponse,
    ),
    "ListPartitionReassignments": (
        admin.ListPartitionReassignmentsRequest,
        admin.ListPartitionReassignmentsResponse,
    ),
    "DescribeAcls": (admin.DescribeAclsRequest, admin.DescribeAclsResponse),
    "CreateAcls": (admin.CreateAclsRequest, admin.CreateAclsResponse),
    "DeleteAcls": (admin.DeleteAclsRequest, admin.DeleteAclsResponse),
    "DescribeClientQuotas": (admin.DescribeClientQuotasRequest, admin.DescribeClientQuotasResponse),
    "AlterClientQuotas": (admin.AlterClientQuotasRequest, admin.AlterClientQuotasResponse),
    "DescribeUserScramCredentials": (
        admin.DescribeUserScramCredentialsRequest,
        admin.DescribeUserScramCredentialsResponse,
    ),
    "AlterUserScramCredentials": (
        admin.AlterUserScramCredentialsRequest,
        admin.AlterUserScramCredentialsResponse,
    ),
    "AlterReplicaLogDirs": (admin.AlterReplicaLogDirsRequest, admin.AlterReplicaLogDirsResponse),
    "DescribeQuorum": (admin.DescribeQuorumRequest, admin.DescribeQuorumResponse),
    "UpdateFeatures": (admin.UpdateFeaturesRequest, admin.UpdateFeaturesResponse),
    "UnregisterBroker": (UnregisterBrokerRequest, UnregisterBrokerResponse),
    "DescribeTransactions": (admin.DescribeTransactionsRequest, admin.DescribeTransactionsResponse),
    "ListTransactions": (admin.ListTransactionsRequest, admin.ListTransactionsResponse),
    "ListGroups": (admin.ListGroupsRequest, admin.ListGroupsResponse),
}


class WireError(Exception):
    """The peer sent bytes that are no answer to what it was asked."""


class NoAnswerError(WireError):
    """The peer neither answered in time nor closed the connection."""


class Connection:
    """One connection at a time to one broker; `ask` sends one request and waits for its answer."""

    def __init__(self, bootstrap: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self.client_id = CLIENT_ID
        host, _, port = bootstrap.rpartition(":")
        self.address = (host, int(port))
        self._socket: socket.socket | None = None
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, api: str, version: int, *, answered: bool = True, **fields: Any) -> Any:
        """Send one request of `api`; its answer as a dict, or None if the broker closed instead.

        `answered=False` (acks=0) does not wait and returns an empty dict.
        """
        key, flexible, body = encode_request(api, version, fields)
        frame = self.ask_raw(key, version, body, flexible=flexible, answered=answered)
        if frame is None or not answered:
            return None if frame is None else {}
        return decode_answer(api, version, frame)

    def ask_raw(
        self, key: int, version: int, body: bytes, *, flexible: bool = False, answered: bool = True
    ) -> bytes | None:
        """Send a request body as it is; the answer without its correlation id, or None if closed."""
        correlation_id = next(self._correlation_ids)
        client_id = self.client_id.encode()
        head = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id
        frame = head + (b"\0" if flexible else b"") + body
        self.send(struct.pack(">i", len(frame)) + frame)
        if not answered:
            return b""
        try:
            answer = self.receive()
        except TimeoutError:
            self.close()
            raise NoAnswerError(f"API {key} v{version}: no answer") from None
        if answer is None:
            self.close()
            return None
        (echoed,) = struct.unpack_from(">i", answer)
        if echoed != correlation_id:
            raise WireError(f"correlation id {echoed}, not {correlation_id}")
        return answer[4:]

    def send(self, data: bytes) -> None:
        """Send bytes, framed or not; the peer may close meanwhile."""
        if self._socket is None:
            self._socket = socket.create_connection(self.address, timeout=self.timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(self.timeout_s)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def receive(self) -> bytes | None:
        """One frame without its size, or None if the peer closed the connection."""
        head = self._read(4)
        return None if head is None else self._read(struct.unpack(">i", head)[0])

    def _read(self, size: int) -> bytes | None:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                return None
            data += part
        return bytes(data)


def encode_request(api: str, version: int, fields: dict[str, Any]) -> tuple[int, bool, bytes]:
    """Key, whether the header is flexible, and body of a request; nested structs are dicts."""
    schema = SCHEMAS[api][0]
    message = build(schema, fields, version)
    return (
        schema.API_KEY,
        schema.flexible_version_q(version),
        bytes(message.encode(version=version)),
    )


def build(schema: Any, fields: dict[str, Any], version: int) -> Any:
    """A message or nested struct of `schema` from plain dicts.

    Fields that the version does not have are left out, so one dict serves all versions.
    """
    values = {}
    for name, value in fields.items():
        field = schema._struct.fields[name]
        if not field.for_version_q(version):
            continue
        if field.is_struct_array() and value is not None:
            values[name] = [build(field.data_class, one, version) for one in value]
        elif field.is_struct() and value is not None:
            values[name] = build(field.data_class, value, version)
        else:
            values[name] = value
    return schema(version=version, **values)


def decode_answer(api: str, version: int, frame: bytes) -> dict[str, Any]:
    """An answer's fields as plain values. Raises WireError unless every byte is accounted for."""
    schema = SCHEMAS[api][1]
    flexible = schema.flexible_version_q(version)
    if flexible and api != "ApiVersions":
        if frame[:1] != b"\0":
            raise WireError(f"{api} v{version}: response header tags {frame[:1].hex()}")
        frame = frame[1:]
    decode = schema._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=schema
    )
    try:
        message, end = decode(memoryview(frame), 0)
    except Exception as error:
        raise WireError(f"{api} v{version} answer cannot be read: {error!r}") from error
    if end != len(frame):
        raise WireError(f"{api} v{version} answer has {len(frame) - end} bytes too many")
    return plain(message.to_dict(json=False))


def plain(value: Any) -> Any:
    """Nested values without views and sets of the codec's own."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if key != "tags"}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    return value
