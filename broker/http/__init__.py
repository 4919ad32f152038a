"""HTTP: metrics, health, and what Kafka's protocol cannot say as JSON.

`application.py` serves /metrics, /healthz and /readyz, and `api.py` the routes below /v1, which `routes/`
declares, lists at / and describes as OpenAPI; `server.py` bounds connections, time and names.
`readiness.py` has the reasons for which /readyz is 503. In a cluster `leading.py` says who answers for a
partition, `others.py` asks the other brokers, and `gathering.py` makes one answer of theirs. `answers.py`
makes JSON and errors, `question.py` parses parameters. `explain.py` explains retention with sentences from
`storage/log/retention/explanation.py`, `doctor.py` makes a diagnosis, `clock.py` describes the clock,
`cluster_facts.py` the cluster, `metrics/` declares what Prometheus reads.
`changes.py` has the changes, and who may request one. The routes and aiohttp are imported with the first
request.
"""
