"""Apache Kafka from its published jars, as a judge for tests and a yardstick for benchmarks.

`fetch(version)` copies the jars of one Kafka version into a cache directory with Maven, once;
afterwards everything works offline. A stamp file lists the jars and their sizes, so a half-finished
download is done again. `ApacheKafka` then runs one broker on the loopback interface: 3.x and
4.x as a single KRaft node, 0.x with a ZooKeeper from the same jars. Ports are free ones, waiting is bounded,
and only processes started here are ended, by their own id.

    with ApacheKafka("3.9.1", directory, {"num.partitions": 1}) as kafka:
        talk_to(kafka.bootstrap)

On the command line, `apache_kafka.py fetch 3.9.1` fills the cache and `apache_kafka.py run 3.9.1`
also starts a broker in a temporary directory until its standard input ends. The cache is `.cache/`
of the repository, or the directory that the environment variable TIDELOG_CACHE names.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

INSTALL_HINT = (
    "needs a Java runtime (11 or newer, for 4.x 17) and Maven: "
    "apt-get install default-jre-headless maven"
)

# What to put on the class path, as group:artifact:version. Kafka 3.x leaves the choice of a
# logging back end to its distribution.
COORDINATES: dict[str, tuple[str, ...]] = {
    "3.9.1": ("org.apache.kafka:kafka_2.13:3.9.1", "org.slf4j:slf4j-reload4j:1.7.36"),
    # 4.x logs with log4j 2 and needs a Java runtime of 17 or newer.
    "4.1.1": (
        "org.apache.kafka:kafka_2.13:4.1.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    ),
    # A JDK newer than 8 lacks the javax.xml.bind that this one encodes its cluster id with.
    "0.10.2.2": ("org.apache.kafka:kafka_2.12:0.10.2.2", "javax.xml.bind:jaxb-api:2.3.1"),
    # The command line tools, for tests/tools. Of their own they log nowhere.
    "tools-3.9.1": ("org.apache.kafka:kafka-tools:3.9.1", "org.apache.kafka:kafka_2.13:3.9.1"),
    "tools-4.1.1": ("org.apache.kafka:kafka-tools:4.1.1", "org.apache.kafka:kafka_2.13:4.1.1"),
    # Connect with its file connectors, MirrorMaker 2 and Streams; each with what it logs with.
    "connect-3.9.1": (
        "org.apache.kafka:connect-file:3.9.1",
        "org.apache.kafka:connect-mirror:3.9.1",
        "org.apache.kafka:kafka-streams:3.9.1",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
    "connect-4.1.1": (
        "org.apache.kafka:connect-file:4.1.1",
        "org.apache.kafka:connect-mirror:4.1.1",
        "org.apache.kafka:kafka-streams:4.1.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    ),
    # Flink with what runs a job in one process, and its connector.
    "flink-2.2.1": (
        "org.apache.flink:flink-clients:2.2.1",
        "org.apache.flink:flink-streaming-java:2.2.1",
        "org.apache.flink:flink-connector-base:2.2.1",
        "org.apache.flink:flink-connector-kafka:5.0.0-2.2",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    ),
}
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
FETCH_TIMEOUT_S = 600
START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60
# What a broker dies of at its start that another try does not meet: somebody took its port in between.
PASSING = "Address already in use"
# A broker that stands still for as long is taken for dead by its controller, which then moves its partitions;
# and one that was killed may only come back when its session has ended.
SESSION_MS = 30_000

# How a broker's code is compiled. With QUICK it starts with two thirds of the CPU, and serves slower once it
# is warm: for tests. FULL is what people run, and what is measured.
FULL = ("-XX:+UseG1GC",)
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

# Old Kafka reaches into the JDK's own packages when it unmaps index files.
OPENED_PACKAGES = (
    "java.base/sun.nio.ch",
    "java.base/java.nio",
    "java.base/java.lang",
    "java.base/jdk.internal.ref",
)

LOG4J = """\
log4j.rootLogger={level}, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={file}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
LOG4J_2 = """\
rootLogger.level={level}
rootLogger.appenderRef.file.ref=file
appender.file.type=File
appender.file.name=file
appender.file.fileName={file}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
"""


class ApacheKafkaError(RuntimeError):
    """The jars could not be fetched, or a broker did not start; the message says why."""


class Availability(NamedTuple):
    """Whether a tool can be used (`bool(...)`), and why not."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


def find_java() -> str | None:
    """Path of the `java` program: JAVA_HOME's before the one on the PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        return str(Path(home, "bin", "java"))
    return shutil.which("java")


def java_available() -> Availability:
    """Whether a Java runtime is installed."""
    if find_java() is None:
        return Availability(ok=False, reason=f"no java program found; {INSTALL_HINT}")
    return Availability(ok=True, reason="")


def maven_available() -> Availability:
    """Whether Maven is installed (it is needed once per Kafka version, to fetch the jars)."""
    if shutil.which("mvn") is None:
        return Availability(ok=False, reason=f"no mvn program found; {INSTALL_HINT}")
    return Availability(ok=True, reason="")


def available(version: str) -> Availability:
    """Whether Apache Kafka `version` can run here: Java, and Maven unless the jars are there."""
    java = java_available()
    return java if not java or is_fetched(version) else maven_available()


def require(*versions: str) -> None:
    """Skips the test that calls it unless Apache Kafka of these versions can run here."""
    import pytest  # not where it is run as a program

    for version in versions:
        usable = available(version)
        if not usable:
            pytest.skip(f"no Apache Kafka {version}: {usable.reason}")


def cache_root() -> Path:
    """The directory that keeps the jars: TIDELOG_CACHE, or `.cache` of the repository."""
    named = os.environ.get("TIDELOG_CACHE")
    return Path(named).resolve() if named else Path(__file__).resolve().parents[2] / ".cache"


def jar_directory(version: str) -> Path:
    """Where the jars of `version` are, once fetched."""
    return cache_root() / f"kafka-{version}"


def is_fetched(version: str) -> bool:
    """Whether the cache holds every jar that the stamp of a finished download lists."""
    directory = jar_directory(version)
    try:
        stamp = json.loads((directory / "stamp.json").read_text())
        if stamp["coordinates"] != list(COORDINATES[version]):
            return False
        return all(
            (directory / name).stat().st_size == size for name, size in stamp["jars"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def fetch(version: str) -> Path:
    """Make sure the jars of `version` are in the cache, and return their directory.

    Raises ApacheKafkaError if the version is unknown, Maven is missing, or the download fails.
    """
    if version not in COORDINATES:
        raise ApacheKafkaError(
            f"no coordinates for Apache Kafka {version}; known: {', '.join(COORDINATES)}"
        )
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"kafka-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may start at once
        if not is_fetched(version):
            _download(version)
    return jar_directory(version)


def _download(version: str) -> None:
    maven = maven_available()
    if not maven:
        raise ApacheKafkaError(maven.reason)
    target = jar_directory(version)
    with tempfile.TemporaryDirectory(prefix=f"kafka-{version}.", dir=cache_root()) as directory:
        work = Path(directory)
        (work / "pom.xml").write_text(_pom(COORDINATES[version]))
        jars = work / "jars"
        command = [
            "mvn",
            "--batch-mode",
            "--quiet",
            f"{DEPENDENCY_PLUGIN}:copy-dependencies",
            f"-DoutputDirectory={jars}",
        ]
        try:
            done = subprocess.run(
                command,
                cwd=work,
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ApacheKafkaError(
                f"Maven did not fetch Apache Kafka {version} in {FETCH_TIMEOUT_S} s"
            ) from error
        sizes = {jar.name: jar.stat().st_size for jar in sorted(jars.glob("*.jar"))}
        if done.returncode != 0 or not sizes:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
            raise ApacheKafkaError(f"Maven could not fetch Apache Kafka {version}:\n{tail}")
        stamp = {"coordinates": list(COORDINATES[version]), "jars": sizes}
        (jars / "stamp.json").write_text(json.dumps(stamp, indent=1))
        shutil.rmtree(target, ignore_errors=True)
        jars.rename(target)


def _pom(coordinates: Sequence[str]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in (coordinate.split(":") for coordinate in coordinates)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>oracle</groupId><artifactId>oracle</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment; distinct."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def _affinity(cpu: int | None) -> Iterator[None]:
    """Start processes on one CPU: a child inherits the affinity of the thread that starts it."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Process:
    """One program in the background; it writes `<name>.out` and `<name>.log`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        cpu: int | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.log = directory / f"{name}.log"
        self.out = directory / f"{name}.out"
        with self.out.open("ab") as out, _affinity(cpu):
            self.process = subprocess.Popen(
                command, cwd=cwd or directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask it to end, wait, and kill it if it does not end in time."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait(timeout_s)
        atexit.unregister(self.kill)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.alive():
            self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def tail(self, lines: int = 15) -> str:
        """The last lines of its output and of its log."""
        text = []
        for path in (self.out, self.log):
            if path.exists():
                text += path.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(text)


class Place(NamedTuple):
    """Which node of a KRaft quorum a broker is: its id, and the ports of all nodes by their ids."""

    node_id: int
    ports: Mapping[int, NodePorts]


class NodePorts(NamedTuple):
    """Where a node listens on the loopback interface."""

    clients: int
    controller: int


def start_again_if_passing(start: Callable[[], None], stop: Callable[[], None]) -> None:
    """Starts what another process may hold a port of, three times at most.

    Raises the ApacheKafkaError of the last start, or the first one that has another cause.
    """
    for attempts_left in (2, 1, 0):
        try:
            start()
            return
        except ApacheKafkaError as error:
            stop()
            if not attempts_left or PASSING not in str(error):
                raise


class ApacheKafka:
    """One Apache Kafka broker on the loopback interface.

    `directory` takes everything it writes (created if missing; a stopped broker may be started
    again on it). `properties` win over the defaults here. `cpu` pins the processes to one CPU. A broker whose
    `properties` name an `inter.broker.protocol.version` runs with a ZooKeeper: one without has no such thing,
    nor a message format of its own. `listeners` are more listeners of a broker without a ZooKeeper, each with
    its security protocol; `ports` has their ports. With a `place` it is one node of a quorum whose ports are
    chosen already, and everything that concerns replication keeps Kafka's default. `jvm` are more options of
    Java: FULL or QUICK.
    """

    def __init__(
        self,
        version: str,
        directory: str | Path,
        properties: Mapping[str, object] | None = None,
        cpu: int | None = None,
        heap: str = "512m",
        listeners: Mapping[str, str] | None = None,
        place: Place | None = None,
        jvm: Sequence[str] = FULL,
    ) -> None:
        self.version = version
        self.directory = Path(directory).resolve()
        self.properties = dict(properties or {})
        self.cpu = cpu
        self.jvm = jvm
        self.heap = heap
        self.listeners = dict(listeners or {})
        self.place = place
        self.ports: dict[str, int] = {}
        self.port = 0
        self.start_seconds = 0.0
        self._broker: Process | None = None
        self._zookeeper: Process | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` of its plaintext listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the broker (not of its ZooKeeper)."""
        if self._broker is None:
            raise ApacheKafkaError("the broker is not running")
        return self._broker.pid

    @property
    def log_dir(self) -> Path:
        """The directory that holds the partition directories."""
        return self.directory / "data"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Fetch the jars if need be, start the broker, and wait until it answers.

        Raises ApacheKafkaError if it does not answer in time; what it wrote is in the message.
        """
        if self._broker is not None:
            raise ApacheKafkaError("the broker is running already")
        fetch(self.version)
        java = java_available()
        if not java:
            raise ApacheKafkaError(java.reason)
        self.directory.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        start_again_if_passing(self._start_once, self.stop)
        self.start_seconds = time.monotonic() - begin

    def stop(self) -> None:
        """End the broker and its ZooKeeper; nothing happens if they do not run."""
        for process in (self._broker, self._zookeeper):
            if process is not None:
                process.stop()
        self._broker = self._zookeeper = None

    def kill(self) -> None:
        """End the broker as a crash would; its ZooKeeper ends in order."""
        if self._broker is not None:
            self._broker.kill()
        self.stop()

    def log_tail(self) -> str:
        """The last lines that the broker wrote, for a failure message."""
        return self._broker.tail() if self._broker else ""

    def _start_once(self) -> None:
        if self.version.startswith("0.") or "inter.broker.protocol.version" in self.properties:
            self._start_zookeeper_broker()
        else:
            self._start_kraft_broker()
        assert self._broker is not None
        self._wait(self._broker, self.port, answers_metadata)

    def _start_kraft_broker(self) -> None:
        place, more = self._place_and_more_ports()
        self.port, controller = place.ports[place.node_id]
        self.ports = dict(zip(self.listeners, more, strict=True))
        listeners = {"PLAINTEXT": self.port, **self.ports, "CONTROLLER": controller}
        protocols = {"PLAINTEXT": "PLAINTEXT", **self.listeners, "CONTROLLER": "PLAINTEXT"}
        voters = (f"{node}@127.0.0.1:{ports.controller}" for node, ports in place.ports.items())
        config = self._write_properties(
            "server.properties",
            {
                "node.id": place.node_id,
                "process.roles": "broker,controller",
                "listeners": ",".join(f"{name}://127.0.0.1:{p}" for name, p in listeners.items()),
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
                "controller.quorum.voters": ",".join(voters),
                "initial.broker.registration.timeout.ms": START_TIMEOUT_S * 1000,
                "log.dirs": self.log_dir,
                **(self._lone_broker_properties() if self.place is None else {}),
                **self.properties,
            },
        )
        if not (self.log_dir / "meta.properties").exists():
            self._format_storage(config)
        self._broker = self._java("broker", "kafka.Kafka", [str(config)], self.heap)

    def _place_and_more_ports(self) -> tuple[Place, list[int]]:
        """Returns the node's place, a quorum of its own unless it is given one, and `listeners`' ports."""
        if self.place is not None:
            return self.place, free_ports(len(self.listeners))
        clients, controller, *more = free_ports(2 + len(self.listeners))
        return Place(1, {1: NodePorts(clients, controller)}), more

    def _format_storage(self, config: Path) -> None:
        """What kafka-storage.sh does: give the node's directory a cluster id."""
        cluster_id = "dGlkZWxvZy1vcmFjbGU9PQ"  # 22 characters of base64: any 16 bytes will do
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(config)]
        tool = self._java("format", "kafka.tools.StorageTool", arguments, "128m")
        try:
            tool.process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            tool.kill()
        if tool.process.returncode != 0:
            raise ApacheKafkaError(f"kafka-storage format failed:\n{tool.tail()}")

    def _start_zookeeper_broker(self) -> None:
        self.port, zookeeper = free_ports(2)
        zookeeper_config = self._write_properties(
            "zookeeper.properties",
            {
                "dataDir": self.directory / "zookeeper",
                "clientPort": zookeeper,
                "clientPortAddress": "127.0.0.1",
                "maxClientCnxns": 0,
                "admin.enableServer": "false",
                "4lw.commands.whitelist": "ruok, dump",
                "tickTime": 500,  # ms: how exactly the end of a session is kept
                "maxSessionTimeout": SESSION_MS,
            },
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._zookeeper = self._java("zookeeper", main, [str(zookeeper_config)], "128m")
        self._wait(self._zookeeper, zookeeper, answers_ruok)
        self._wait(self._zookeeper, zookeeper, remembers_no_broker)
        config = self._write_properties(
            "server.properties",
            {
                "broker.id": 1,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "zookeeper.connect": f"127.0.0.1:{zookeeper}",
                "zookeeper.session.timeout.ms": SESSION_MS,
                "zookeeper.connection.timeout.ms": START_TIMEOUT_S * 1000,
                "controlled.shutdown.enable": "false",
                **self._common_properties(),
                **self.properties,
            },
        )
        self._broker = self._java("broker", "kafka.Kafka", [str(config)], self.heap)

    def _lone_broker_properties(self) -> dict[str, object]:
        """What a KRaft broker without another one, which a test may pause, needs."""
        return {
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "broker.session.timeout.ms": SESSION_MS,
            **self._common_properties(),
        }

    def _common_properties(self) -> dict[str, object]:
        return {
            "log.dirs": self.log_dir,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "log.retention.ms": -1,
        }

    def _write_properties(self, name: str, properties: Mapping[str, object]) -> Path:
        path = self.directory / name
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _java(self, name: str, main: str, arguments: Sequence[str], heap: str) -> Process:
        java = find_java()
        assert java is not None
        is_old = self.version.startswith(("0.", "3."))
        log4j = self.directory / f"{name}.{'log4j' if is_old else 'log4j2'}.properties"
        text = (LOG4J if is_old else LOG4J_2).format(
            level="WARN", file=self.directory / f"{name}.log"
        )
        log4j.write_text(text)
        logging = "log4j.configuration" if is_old else "log4j2.configurationFile"
        command = [
            java,
            f"-Xmx{heap}",
            *self.jvm,
            "-Djava.awt.headless=true",
            f"-D{logging}={log4j.as_uri()}",
            f"-Dkafka.logs.dir={self.directory}",
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED_PACKAGES),
            "-cp",
            f"{jar_directory(self.version)}/*",
            main,
            *arguments,
        ]
        return Process(name, command, self.directory, self.cpu)

    def _wait(self, process: Process, port: int, answers: Callable[[int], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if not process.alive():
                raise ApacheKafkaError(
                    f"Apache Kafka {self.version} ended while starting:\n{process.tail()}"
                )
            if answers(port):
                return
            time.sleep(0.05)  # a foreign process can only be polled
        raise ApacheKafkaError(
            f"Apache Kafka {self.version} did not start in {START_TIMEOUT_S} s:\n{process.tail()}"
        )


def _ask(port: int, request: bytes, size: int) -> bytes:
    """Send `request` and return up to `size` bytes of the answer; empty if nobody answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            if connection.getsockname() == connection.getpeername():
                return b""  # where nobody listens, a connection may by chance be one to itself
            connection.sendall(request)
            answer = b""
            while len(answer) < size and (part := connection.recv(size - len(answer))):
                answer += part
            return answer
    except OSError:
        return b""


def answers_metadata(port: int) -> bool:
    """Whether a broker on `port` answers a Metadata v1 request with at least one broker."""
    return named_brokers(port) > 0


def named_brokers(port: int) -> int:
    """How many brokers the one on `port` names in a Metadata v1 answer; 0 if nobody answers."""
    request = bytes.fromhex("0003 0001 00000007 ffff ffffffff")
    answer = _ask(port, len(request).to_bytes(4, "big") + request, 12)
    return int.from_bytes(answer[8:], "big") if len(answer) == 12 else 0


def answers_ruok(port: int) -> bool:
    """Whether a ZooKeeper on `port` says it is fine."""
    return _ask(port, b"ruok", 4) == b"imok"


def remembers_no_broker(port: int) -> bool:
    """Whether the ZooKeeper on `port` has let go of every broker that was killed."""
    told = _ask(port, b"dump", 1 << 16)
    return b"Sessions with Ephemerals" in told and b"/brokers/ids/" not in told


def main(arguments: Sequence[str]) -> int:
    """Command line: `fetch VERSION` or `run VERSION`."""
    if (
        len(arguments) != 2
        or arguments[0] not in ("fetch", "run")
        or not re.fullmatch(r"(tools-|connect-|flink-)?[\d.]+", arguments[1])
    ):
        print(f"usage: apache_kafka.py fetch|run {'|'.join(COORDINATES)}", file=sys.stderr)
        return 2
    action, version = arguments
    try:
        directory = fetch(version)
        print(f"Apache Kafka {version}: {len(list(directory.glob('*.jar')))} jars in {directory}")
        if action == "run":
            with tempfile.TemporaryDirectory() as work, ApacheKafka(version, work) as kafka:
                print(f"{kafka.bootstrap} pid {kafka.pid} {kafka.start_seconds:.1f} s", flush=True)
                sys.stdin.read()
    except ApacheKafkaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
