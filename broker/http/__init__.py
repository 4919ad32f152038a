"""HTTP: metrics, health, and a JSON API for what Kafka's protocol has no request for.

`application.py` serves /metrics, /healthz and /readyz, and `api.py` the routes below /v1, which `routes/`
declares, lists at / and describes as OpenAPI; `server.py` limits connections, time and Host names.
`readiness.py` returns the reasons for which /readyz is 503. In a cluster `leader_map.py` finds the leaders of
partitions, `http_peers.py` sends requests to other brokers, and `gathering.py` merges their answers.
`answers.py` writes JSON and errors, `api_query.py` parses parameters. `explain.py` explains retention with
sentences from `storage/log/retention/explanation.py`, `doctor.py` makes a diagnosis, `clock.py` describes the
clock, `cluster_facts.py` the cluster, `metrics/` declares the metrics of Prometheus. `changes.py` has the
changes, and who may request one. The routes and aiohttp are imported with the first request.
"""
