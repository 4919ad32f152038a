"""The services of compose.cluster.yaml, on ports of their own, and what is done to them.

Brokers and members of etcd are named as in the file: `broker-1`, `etcd-3`.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import kafka
from kafka import KafkaConsumer, TopicPartition

from tests.docker import engine
from tests.docker.compose_stack import ComposeStack
from tests.docker.containers import on_free_ports

BROKERS = ("broker-1", "broker-2", "broker-3")
MEMBERS = ("etcd-1", "etcd-2", "etcd-3")
PRODUCER = Path(__file__).with_name("steady_producer.py")
PYTHON = "/opt/tidelog/bin/python"  # in the image
WELL_WITHIN_S = 120
GRACE_S = 45


class ClusterStack(ComposeStack):
    """Three brokers over three members of etcd, and Prometheus where it can be had."""

    file = "compose.cluster.yaml"
    up_verb, down_verb = "cluster-up", "cluster-down"

    def __init__(self, image, etcd):
        super().__init__(image, [*MEMBERS, *BROKERS], ETCD_IMAGE=etcd)

    def up(self):
        on_free_ports(7, self._start)
        self.until_well()

    def _start(self, *ports):
        self.ports = dict(zip(BROKERS, ports[:3], strict=True))
        self.http = dict(zip(BROKERS, ports[3:6], strict=True))
        named = {}
        for name in BROKERS:
            variable = name.replace("-", "_").upper()
            named[f"{variable}_PORT"] = self.ports[name]
            named[f"{variable}_HTTP_PORT"] = self.http[name]
        self.start(ports[6], **named)

    @property
    def outside(self):
        """The addresses for clients on the host."""
        return ",".join(f"localhost:{port}" for port in self.ports.values())

    @property
    def inside(self):
        """The addresses for clients in a container on the network."""
        return ",".join(f"{name}:9092" for name in BROKERS)

    def do(self, verb, service, *options):
        """Runs `docker VERB` for the container of a service."""
        return engine.run(engine.name(), verb, *options, self.container(service))

    def execute(self, service, *command, status=0):
        words = (engine.name(), "exec", self.container(service), *command)
        return engine.run(*words, status=status)

    def stop(self, service):
        """Stops a container as compose does: SIGTERM, and SIGKILL when its time is over."""
        self.do("stop", service, "--time", GRACE_S)

    def disconnect(self, service):
        """Cuts a container off from everybody else."""
        engine.run(engine.name(), "network", "disconnect", self.network, self.container(service))

    def connect(self, service):
        words = ("network", "connect", "--alias", service, self.network)
        engine.run(engine.name(), *words, self.container(service))

    def cluster(self, broker):
        """Returns what a broker's /v1/cluster says; None where it does not answer."""
        ask = http.client.HTTPConnection("127.0.0.1", self.http[broker], timeout=10)
        try:
            ask.request("GET", "/v1/cluster")
            answer = ask.getresponse()
            return json.load(answer) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            ask.close()

    def until_well(self):
        """Waits until every broker says that all serve, and that no replica is out of sync."""
        deadline_s = time.monotonic() + WELL_WITHIN_S
        while not all(_is_well(self.cluster(broker)) for broker in BROKERS):
            assert time.monotonic() < deadline_s, self.told()
            time.sleep(0.1)

    def told(self):
        """Returns what the brokers say, and the ends of all logs."""
        told = [str(self.cluster(broker)) for broker in BROKERS]
        told += [self.do("logs", service, "--tail", "30") for service in (*BROKERS, *MEMBERS)]
        return "\n\n".join(told)

    def ends_with(self, volume, *variables):
        """Returns what a broker says that is given a volume and cannot start, with the status 1."""
        words = [engine.name(), "run", "--rm", "--network", self.network]
        words += ["--volume", f"{self.project}_{volume}:/var/lib/tidelog"]
        for variable in variables:
            words += ["--env", variable]
        return engine.run(*words, self.image, within_s=120, status=1)

    def run(self, name, *arguments, options=()):
        """Returns the words that run a Python of the image on the network of the stack."""
        words = [engine.name(), "run", "--rm", "--network", self.network, "--name", name]
        return [*words, *options, "--entrypoint", PYTHON, self.image, *arguments]


def _is_well(answer):
    if answer is None:
        return False
    serving = [broker for broker in answer["brokers"] if broker["state"] == "serving"]
    return len(serving) == len(BROKERS) and all(
        each["state"] == "ok" and len(each["isr"]) == len(BROKERS) for each in answer["partitions"]
    )


class SteadyProducer:
    """A process that produces numbered records and says which were acknowledged."""

    def __init__(self, words, stop, remove):
        """`stop` ends it in order, `remove` leaves nothing of it, also where it has ended."""
        self._stop, self._remove = stop, remove
        self.acked, self.failed, self.is_over = set(), [], False
        self._began = threading.Event()
        self._process = subprocess.Popen(
            [str(word) for word in words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._other = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def outside(cls, stack, topic, per_second):
        words = (sys.executable, PRODUCER, stack.outside, topic, "outside", per_second)
        return cls(words, lambda process: process.terminate(), lambda process: process.kill())

    @classmethod
    def inside(cls, stack, topic, per_second):
        """In a container, with the kafka-python of the host: it is Python alone."""
        name = f"{stack.project}-producer"
        library = Path(kafka.__file__).parent
        options = ("--volume", f"{library}:/libraries/kafka:ro", "--env", "PYTHONPATH=/libraries")
        options += ("--volume", f"{PRODUCER}:/steady_producer.py:ro")
        arguments = ("/steady_producer.py", stack.inside, topic, "inside", per_second)
        words = stack.run(name, *arguments, options=options)

        def signalled(_process):
            engine.run(engine.name(), "kill", "--signal", "TERM", name)

        def removed(process):
            engine.run(engine.name(), "rm", "--force", name, status=None)
            process.kill()

        return cls(words, signalled, removed)

    def _read(self):
        for line in self._process.stdout:
            verb, _, rest = line.strip().partition(" ")
            if verb == "began":
                self._began.set()
            elif verb == "acked":
                self.acked.add(rest)
            elif verb == "failed":
                self.failed.append(rest)
            elif verb == "end":
                self.is_over = True
            else:
                self._other.append(line)

    def until_begun(self):
        assert self._began.wait(60), self._other
        return self

    def until_more(self, count=20, within_s=90):
        """Waits until so many more records have been acknowledged."""
        wanted, deadline_s = len(self.acked) + count, time.monotonic() + within_s
        while len(self.acked) < wanted:
            assert self._process.poll() is None, self._other
            assert time.monotonic() < deadline_s, (len(self.acked), self.failed, self._other[-20:])
            time.sleep(0.05)

    def end(self):
        """Stops it, and waits until every record was answered."""
        self._stop(self._process)
        self._process.wait(180)
        self._reader.join(60)
        assert self.is_over, self._other

    def remove(self):
        self._remove(self._process)
        self._process.wait(60)
        self._reader.join(60)
        self._process.stdout.close()


def everything(bootstrap, topic):
    """Returns the values of all records of a topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), consumer_timeout_ms=60_000)
    partitions = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(partitions)
    found = []
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        for records in consumer.poll(1_000).values():
            found += [record.value.decode() for record in records]
    consumer.close()
    return found
