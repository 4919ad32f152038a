"""One handler file per API, named as its schema in protocol/api.

Each module has `handle(services, request, context)`, which serves a request, and `refuse(request,
error)`, which returns the response that carries one error for the whole request. `admission.py` decides
who may produce and commit; the member's generation is checked by `Group.check_commit` in
`broker/coordinators/groups/group.py`.
"""
