"""Brokers in containers, and clients on the host."""

from __future__ import annotations

import http.client
import secrets
import socket
import time
from contextlib import ExitStack

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.broker.subject import eventually
from tests.docker import engine

# What docker and podman say of a port that somebody has.
TAKEN = ("address already in use", "port is already allocated")


def on_free_ports(count, start):
    """Start something on ports that nobody has; on others if somebody takes one in between."""
    for is_last in (False, False, False, True):
        with ExitStack() as stack:
            taken = [stack.enter_context(socket.socket()) for _ in range(count)]
            for one in taken:
                one.bind(("127.0.0.1", 0))
            ports = [one.getsockname()[1] for one in taken]
        try:
            start(*ports)
        except AssertionError as error:
            if is_last or not any(words in str(error) for words in TAKEN):
                raise
        else:
            return


def ready(port):
    """Whether /readyz says so."""
    ask = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        ask.request("GET", "/readyz")
        return ask.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False  # nobody there yet
    finally:
        ask.close()


class Container:
    """A broker in a container, on ports of its own."""

    def __init__(self, image, *, environ=(), volume=None, arguments=()):
        self.image, self.environ, self.volume, self.arguments = image, environ, volume, arguments
        on_free_ports(2, self._run)

    def _run(self, port, http_port):
        self.name = f"tidelog-test-{secrets.token_hex(4)}"
        self.port, self.http = port, http_port
        words = [engine.name(), "run", "--detach", "--name", self.name, "--read-only"]
        words += ["--publish", f"127.0.0.1:{self.port}:9092"]
        words += ["--publish", f"127.0.0.1:{self.http}:8080"]
        advertised = f"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{self.port}"
        for variable in (advertised, *self.environ):
            words += ["--env", variable]
        if self.volume:
            words += ["--volume", f"{self.volume}:/var/lib/tidelog"]
        try:
            engine.run(*words, self.image, *self.arguments)
        except AssertionError:  # it may be there all the same, and not run
            engine.run(engine.name(), "rm", "--force", self.name, status=None)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        engine.run(engine.name(), "rm", "--force", "--volumes", self.name)

    @property
    def bootstrap(self):
        return f"localhost:{self.port}"

    def log(self):
        return engine.run(engine.name(), "logs", self.name)

    def until_told(self, words):
        """Wait for something in its log, which the engine writes down in its own time."""
        eventually(lambda: words in self.log(), what=words)

    def until_ready(self, within_s=120):
        deadline_s = time.monotonic() + within_s
        while not ready(self.http):
            state = engine.inspect("container", self.name)["State"]
            assert state["Running"], self.log()
            assert time.monotonic() < deadline_s, self.log()
        return self

    def execute(self, *command, status=0):
        return engine.run(engine.name(), "exec", self.name, *command, status=status)

    def ended(self, within_s=120):
        """Wait for its end; the exit status."""
        return int(engine.run(engine.name(), "wait", self.name, within_s=within_s).split()[-1])


def produce(bootstrap, topic, count, **more):
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    sent = [producer.send(topic, b"%d" % n, **more).get(60) for n in range(count)]
    producer.close()
    return sent


def values(bootstrap, topic, count):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    found, deadline_s = [], time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline_s:
        for records in consumer.poll(1_000).values():
            found += [record.value for record in records]
    consumer.close()
    return found
