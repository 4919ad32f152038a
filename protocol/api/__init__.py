"""The APIs of the protocol, one file per API.

Each file declares the request, the response and their structs, and binds them together as `API`:
the one declaration of the API's key, its versions, the versions that the broker serves, and the
rights that it needs. The docstring of a file lists what each version added. Field names, types,
versions and defaults are Kafka's (3.9 for the old versions, 4.4 for the new).
`protocol.message.api_of` imports a file when it is first needed; it finds the file by the API's
key.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "produce",
        1: "fetch",
        2: "list_offsets",
        3: "metadata",
        8: "offset_commit",
        9: "offset_fetch",
        10: "find_coordinator",
        11: "join_group",
        12: "heartbeat",
        13: "leave_group",
        14: "sync_group",
        15: "describe_groups",
        16: "list_groups",
        17: "sasl_handshake",
        18: "api_versions",
        19: "create_topics",
        20: "delete_topics",
        21: "delete_records",
        22: "init_producer_id",
        23: "offset_for_leader_epoch",
        24: "add_partitions_to_txn",
        25: "add_offsets_to_txn",
        26: "end_txn",
        27: "write_txn_markers",
        28: "txn_offset_commit",
        29: "describe_acls",
        30: "create_acls",
        31: "delete_acls",
        32: "describe_configs",
        33: "alter_configs",
        34: "alter_replica_log_dirs",
        35: "describe_log_dirs",
        36: "sasl_authenticate",
        37: "create_partitions",
        42: "delete_groups",
        43: "elect_leaders",
        44: "incremental_alter_configs",
        45: "alter_partition_reassignments",
        46: "list_partition_reassignments",
        47: "offset_delete",
        48: "describe_client_quotas",
        49: "alter_client_quotas",
        50: "describe_user_scram_credentials",
        51: "alter_user_scram_credentials",
        55: "describe_quorum",
        57: "update_features",
        60: "describe_cluster",
        61: "describe_producers",
        64: "unregister_broker",
        65: "describe_transactions",
        66: "list_transactions",
        75: "describe_topic_partitions",
    }
)
"""API key -> the file in this folder that declares the API."""
