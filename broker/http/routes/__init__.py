"""The declarations of the requests below /v1, and the pages that are generated from them.

`declared.py` has each request: its parameters, the schema of its answer, its errors (`route.py` has what a
declaration is made of). The handlers (`api`, `changes`) refuse a parameter that is not declared,
`index.py` lists the routes, `openapi.py` describes them with the schemas of `answer_schemas.py`, and
tools/derive_http.py writes the table of docs/http.md. Nothing here is imported before the first request
over HTTP; the description is generated at the first request for it.
"""
