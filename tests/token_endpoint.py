"""An https endpoint that gives tokens for client credentials, in a thread."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import ssl
import threading
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CLIENT, SECRET = "tide", "hunter2/+"


class Endpoint(http.server.ThreadingHTTPServer):
    """Gives the tokens t1, t2, ... to the client."""

    answer: tuple[int, dict | bytes] | None = None
    token: Callable[[int], str] = staticmethod("t{}".format)
    expires_in = 3600
    asked: list[dict]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append({"form": form, "authorization": self.headers["Authorization"]})
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if self.server.answer is not None:
            status, body = self.server.answer
        elif self.headers["Authorization"] != f"Basic {expected}":
            status, body = 401, {"error": "invalid_client", "error_description": "who are you?"}
        else:
            number = len(self.server.asked)
            status = 200
            body = {"access_token": self.server.token(number), "expires_in": self.server.expires_in}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Location", "https://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def token_endpoint(store: Path) -> Iterator[Endpoint]:
    """Serve with the key and certificate in a PEM file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    with Endpoint(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
