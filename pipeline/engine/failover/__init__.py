"""Finds where a group continues in another cluster, and what that costs it.

Pure arithmetic on offsets and times. The offset is chosen by an exact map of offsets (`offsets`), or
by time as in KIP-33 (`times`). Either is only an argument; `proofs` counts, so open that first.
"""
