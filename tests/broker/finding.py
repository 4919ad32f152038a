"""A raw client that finds the coordinator before its first request for it, as every client does."""

from __future__ import annotations

import time
from typing import Any

from tests.oracle import wire

LOAD_IN_PROGRESS = 14
_GROUP, _TRANSACTION = 0, 1
_OF_GROUPS = {
    "DeleteGroups",
    "DescribeGroups",
    "Heartbeat",
    "JoinGroup",
    "LeaveGroup",
    "ListGroups",
    "OffsetCommit",
    "OffsetDelete",
    "OffsetFetch",
    "SyncGroup",
    "TxnOffsetCommit",
}
_OF_TRANSACTIONS = {
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "DescribeTransactions",
    "EndTxn",
    "InitProducerId",
    "ListTransactions",
}
_WITHIN_S = 30


class Client(wire.Connection):
    """A connection to a broker that coordinates all groups and transactions, as the only one does."""

    def __init__(self, bootstrap: str, timeout_s: float = wire.ANSWER_TIMEOUT_S) -> None:
        super().__init__(bootstrap, timeout_s)
        self._found: set[int] = set()

    def ask(self, api: str, version: int, *, answered: bool = True, **fields: Any) -> Any:
        if api in _OF_GROUPS:
            self._find(_GROUP)
        elif api in _OF_TRANSACTIONS and fields.get("transactional_id", "t") is not None:
            self._find(_TRANSACTION)
        return super().ask(api, version, answered=answered, **fields)

    def _find(self, kind: int) -> None:
        """Has the topic of the coordinators created, and read."""
        if kind in self._found:
            return
        self._found.add(kind)
        if super().ask("FindCoordinator", 2, key="any", key_type=kind) is None:
            return
        end = time.monotonic() + _WITHIN_S
        while self._is_being_read(kind) and time.monotonic() < end:
            time.sleep(0.01)

    def _is_being_read(self, kind: int) -> bool:
        api = "ListGroups" if kind == _GROUP else "ListTransactions"
        answer = super().ask(api, 0)
        return answer is not None and answer["error_code"] == LOAD_IN_PROGRESS
