"""How a broker becomes a member of the cluster, stays one, and leaves: pure functions on the image.

Promises that a broker that may have lost records is not elected for having them, and that one which
leaves on purpose takes no leader with it. The usual questions:
- how a broker registers, when it is unfenced, and what it cannot lead: `registration.py`
- whether its logs may have lost something since it registered last: `clean_start.py`
- how it proves to others that a request is its own: `proof.py`
- whether it may still hold its lease, after a pause or when it is cut off: `lease.py`
- how it stops (KIP-841): `controlled_shutdown.py`
- for whom the controller waits, and how long: `sessions.py`
"""
