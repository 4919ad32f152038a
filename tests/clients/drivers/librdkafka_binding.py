"""A bare librdkafka shared library through ctypes: any release, any Python, no compiler.

The library's path is the first argument of the driver. Structures and constants are those of the library's
public C header, unchanged from 0.9 to 2.x.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p

LIBRARY, SERVER = sys.argv[1:3]
PRODUCER, CONSUMER = 0, 1
CONF_OK = 0
MSG_F_COPY = 2
ASSIGN_PARTITIONS = -175  # RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS
# Tags of rd_kafka_producev's arguments.
V_END, V_TOPIC, V_PARTITION, V_VALUE, V_KEY, V_OPAQUE = 0, 1, 3, 4, 5, 6
V_MSGFLAGS, V_TIMESTAMP, V_HEADER = 7, 8, 9


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


class TopicPartitionEntry(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


class TopicPartitionList(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = (("cnt", c_int), ("size", c_int), ("elems", POINTER(TopicPartitionEntry)))


class GroupMember(ctypes.Structure):
    """rd_kafka_group_member_info."""

    _fields_ = (
        ("member_id", c_char_p),
        ("client_id", c_char_p),
        ("client_host", c_char_p),
        ("metadata", c_void_p),
        ("metadata_size", c_int),
        ("assignment", c_void_p),
        ("assignment_size", c_int),
    )


class GroupInfo(ctypes.Structure):
    """rd_kafka_group_info, with its broker (rd_kafka_metadata_broker) spelt out."""

    _fields_ = (
        ("broker_id", c_int32),
        ("host", c_char_p),
        ("port", c_int),
        ("group", c_char_p),
        ("err", c_int),
        ("state", c_char_p),
        ("protocol_type", c_char_p),
        ("protocol", c_char_p),
        ("members", POINTER(GroupMember)),
        ("member_cnt", c_int),
    )


class GroupList(ctypes.Structure):
    """rd_kafka_group_list."""

    _fields_ = (("groups", POINTER(GroupInfo)), ("group_cnt", c_int))


class MetadataPartition(ctypes.Structure):
    """rd_kafka_metadata_partition."""

    _fields_ = (
        ("id", c_int32),
        ("err", c_int),
        ("leader", c_int32),
        ("replica_cnt", c_int),
        ("replicas", c_void_p),
        ("isr_cnt", c_int),
        ("isrs", c_void_p),
    )


class MetadataTopic(ctypes.Structure):
    """rd_kafka_metadata_topic."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition_cnt", c_int),
        ("partitions", POINTER(MetadataPartition)),
        ("err", c_int),
    )


class Metadata(ctypes.Structure):
    """rd_kafka_metadata, as far as its topics."""

    _fields_ = (
        ("broker_cnt", c_int),
        ("brokers", c_void_p),
        ("topic_cnt", c_int),
        ("topics", POINTER(MetadataTopic)),
    )


List = POINTER(TopicPartitionList)
DeliveryReport = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)
Rebalanced = ctypes.CFUNCTYPE(None, c_void_p, c_int, List, c_void_p)
rd = ctypes.CDLL(LIBRARY)
for name, result, arguments in (
    ("rd_kafka_version_str", c_char_p, ()),
    ("rd_kafka_conf_new", c_void_p, ()),
    ("rd_kafka_conf_set", c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    ("rd_kafka_conf_set_dr_msg_cb", None, (c_void_p, DeliveryReport)),
    ("rd_kafka_conf_set_rebalance_cb", None, (c_void_p, Rebalanced)),
    ("rd_kafka_new", c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    ("rd_kafka_flush", c_int, (c_void_p, c_int)),
    ("rd_kafka_poll", c_int, (c_void_p, c_int)),
    ("rd_kafka_destroy", None, (c_void_p,)),
    ("rd_kafka_topic_name", c_char_p, (c_void_p,)),
    ("rd_kafka_err2name", c_char_p, (c_int,)),
    ("rd_kafka_err2str", c_char_p, (c_int,)),
    ("rd_kafka_poll_set_consumer", c_int, (c_void_p,)),
    ("rd_kafka_topic_partition_list_new", List, (c_int,)),
    (
        "rd_kafka_topic_partition_list_add",
        POINTER(TopicPartitionEntry),
        (List, c_char_p, c_int32),
    ),
    ("rd_kafka_subscribe", c_int, (c_void_p, List)),
    ("rd_kafka_assignment", c_int, (c_void_p, POINTER(List))),
    ("rd_kafka_commit", c_int, (c_void_p, List, c_int)),
    ("rd_kafka_committed", c_int, (c_void_p, List, c_int)),
    ("rd_kafka_list_groups", c_int, (c_void_p, c_char_p, POINTER(POINTER(GroupList)), c_int)),
    ("rd_kafka_group_list_destroy", None, (POINTER(GroupList),)),
    (
        "rd_kafka_metadata",
        c_int,
        (c_void_p, c_int, c_void_p, POINTER(POINTER(Metadata)), c_int),
    ),
    ("rd_kafka_metadata_destroy", None, (POINTER(Metadata),)),
    (
        "rd_kafka_query_watermark_offsets",
        c_int,
        (c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64), c_int),
    ),
    ("rd_kafka_offsets_for_times", c_int, (c_void_p, List, c_int)),
    ("rd_kafka_topic_partition_list_destroy", None, (List,)),
    ("rd_kafka_assign", c_int, (c_void_p, List)),
    ("rd_kafka_consumer_poll", POINTER(Message), (c_void_p, c_int)),
    ("rd_kafka_consumer_close", c_int, (c_void_p,)),
    ("rd_kafka_message_destroy", None, (POINTER(Message),)),
    ("rd_kafka_message_timestamp", c_int64, (POINTER(Message), POINTER(c_int))),
):
    function = getattr(rd, name)
    function.restype, function.argtypes = result, arguments
HAS_HEADERS = hasattr(rd, "rd_kafka_message_headers")  # not before 0.11.4
if HAS_HEADERS:
    for name, arguments in (
        ("rd_kafka_message_headers", (POINTER(Message), POINTER(c_void_p))),
        (
            "rd_kafka_header_get_all",
            (c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t)),
        ),
    ):
        function = getattr(rd, name)
        function.restype, function.argtypes = c_int, arguments
rd.rd_kafka_producev.restype = c_int  # variadic: every argument carries its own C type


def configure(options):
    """A configuration object; raises RuntimeError with librdkafka's words."""
    conf = rd.rd_kafka_conf_new()
    options = {"bootstrap.servers": SERVER, "log_level": 0, **options}
    problem = ctypes.create_string_buffer(512)
    for option, value in options.items():
        done = rd.rd_kafka_conf_set(conf, option.encode(), str(value).encode(), problem, 512)
        if done != CONF_OK:
            raise RuntimeError(problem.value.decode())
    return conf


def client_of(kind, conf):
    problem = ctypes.create_string_buffer(512)
    handle = rd.rd_kafka_new(kind, conf, problem, 512)
    if not handle:
        raise RuntimeError(problem.value.decode())
    return handle


def check(error):
    """Raise RuntimeError with the name of an error."""
    if error:
        raise RuntimeError(rd.rd_kafka_err2name(error).decode())


def list_of(places):
    """A list of (topic, partition, offset) for the library; the caller destroys it."""
    made = rd.rd_kafka_topic_partition_list_new(len(places))
    for topic, partition, offset in places:
        added = rd.rd_kafka_topic_partition_list_add(made, topic.encode(), partition)
        added.contents.offset = offset
    return made


def entries_of(found):
    """What stands in a list: (topic, partition, offset, error)."""
    entries = [found.contents.elems[number] for number in range(found.contents.cnt)]
    return [(e.topic.decode(), e.partition, e.offset, e.err) for e in entries]


def leaders(handle, timeout_ms):
    """A partition that each broker leads, as (topic, partition), by the broker's id."""
    found = POINTER(Metadata)()
    check(rd.rd_kafka_metadata(handle, 1, None, byref(found), timeout_ms))
    led = {}
    for topic in found.contents.topics[: found.contents.topic_cnt]:
        for partition in topic.partitions[: topic.partition_cnt]:
            if partition.leader >= 0:
                led[partition.leader] = (topic.topic.decode(), partition.id)
    rd.rd_kafka_metadata_destroy(found)
    return led
