"""One handler file per API, named as its schema in protocol/api.

Each module has `handle(node, request, context)` and `refuse(request, error)`: the response that carries
one error for the whole request.
"""
