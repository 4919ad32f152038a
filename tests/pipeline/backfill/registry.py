"""A schema registry for the tests: the part of its documented HTTP protocol that a producer needs.

`POST /subjects/NAME/versions` registers a schema, or finds it, and answers its id; `GET /schemas/ids/N`
answers a schema. Like a registry of compatibility FULL it refuses (409) a schema that changes the type of a
field that the subject has.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Registry(ThreadingHTTPServer):
    """Schemas by id, and the ids of each subject."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas = {}
        self.subjects = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def register(self, subject, schema):
        """The id of a schema, or None if it is refused."""
        mine = self.subjects.setdefault(subject, [])
        if mine and _changes(json.loads(self.schemas[mine[-1]]), json.loads(schema)):
            return None
        number = next((n for n, one in self.schemas.items() if one == schema), None)
        if number is None:
            number = 70_000 + len(self.schemas)
            self.schemas[number] = schema
        if number not in mine:
            mine.append(number)
        return number


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers["Content-Length"])
        asked = json.loads(self.rfile.read(length))
        parts = self.path.partition("?")[0].strip("/").split("/")
        number = self.server.register(parts[1], asked["schema"])
        if number is None:
            self._answer(
                409, {"error_code": 409, "message": "Schema being registered is incompatible"}
            )
        else:
            self._answer(200, {"id": number})

    def do_GET(self):
        number = int(self.path.partition("?")[0].rpartition("/")[2])
        self._answer(200, {"schema": self.server.schemas[number]})

    def _answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def _changes(before, after):
    known = {one["name"]: one["type"] for one in before["fields"]}
    return any(known.get(one["name"], one["type"]) != one["type"] for one in after["fields"])


@contextlib.contextmanager
def running():
    """A registry on a port of its own."""
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
