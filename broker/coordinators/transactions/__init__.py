"""Transactions: their coordinator, and how it is stored (KIP-98, KIP-890).

Begin with `messages.py`, which names the actions and outcomes, and has the tables of what EndTxn
answers in each state. The usual questions:
- what a request does in each state, as a pure state machine: `transaction.py`
- which producer id, epoch and state follow: `successors.py`
- time-outs, the expiry of transactional ids: `transaction.py`, `Transaction.tick`
- the writes before an answer: `execution.py`; what is read after a restart: `coordinator.py`;
  which ids are coordinated here, the one timer that calls `tick`: the runtime in `broker/coordinators`
- markers into the partitions of a transaction: `markers.py`; their epochs: `coordinator_epochs.py`
- whether a partition may store a transactional batch: `verification.py`
- which refusals are logged: `refusals.py`; what is open in partitions: `open_transactions.py`
- the records of __transaction_state: `protocol/transaction_log.py`; the topic: `state_topic.py`
"""
