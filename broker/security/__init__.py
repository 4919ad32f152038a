"""Who a client is, and what it may do.

`authorizer.py` answers for every request whether its principal may do what it asks.
"""
