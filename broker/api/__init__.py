"""One handler file per API, named as its schema in protocol/api.

Each module has `handle(node, request, context)`, which serves a request, and `refuse(request,
error)`, which returns the response that carries one error for the whole request.
"""
