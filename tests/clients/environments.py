"""Environments of the foreign clients: one directory each, pinned, made once.

Every environment lives under `<cache>/clients/<name>` (`<repository>/.cache`, or TIDELOG_CACHE) and
carries a stamp with the digest of its recipe: set-up runs again only when the recipe or the Python
that runs it changed, and a half-made environment has no stamp. Things are fetched by package name
through pip, apt, Maven and npm, as those are configured on the machine. What cannot be set up
raises Unavailable with one sentence; the matrix prints it as the reason of a skip.

    python tests/clients/environments.py            # make all, print what is there and what is not
    python tests/clients/environments.py kcat java  # only these
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
DRIVERS = HERE / "drivers"

KCAT_PACKAGES = ("kcat", "librdkafka1", "libyajl2")
LIBRDKAFKA_1X = "1.9.2"
# An npm package that carries the sources of librdkafka 0.9.5: no package index has a build of it.
LIBRDKAFKA_09 = "node-rdkafka@1.0.6"
KAFKA_PYTHON = ("1.4.7", "2.0.2", "2.3.3", "3.0.12")
# What these kafka-python versions import when they find it: without them they lack a codec.
KAFKA_PYTHON_CODECS = (
    "lz4==4.4.5",
    "python-snappy==0.7.3",
    "zstandard==0.25.0",
    "crc32c==2.7.1",
    "xxhash==3.5.0",
)
QUIXSTREAMS = "quixstreams==3.28.1"
JAVA_CLIENTS = (
    "0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.1", "4.1.1",
)  # fmt: skip
# Which of the classes of the same name go with a release: the first row that is not newer than it.
JAVA_GENERATIONS = (
    ("2.5", ("Records011", "Consuming", "Grouping", "Offsets", "PollDuration", "FindTimes", "Admin28")),
    ("1.1", ("Records011", "Consuming", "Grouping", "Offsets", "PollMillis", "FindTimes", "Admin11")),
    ("0.11", ("Records011", "Consuming", "Grouping", "Offsets", "PollMillis", "FindTimes", "Admin011")),
    ("0.10.1", ("Records010", "Consuming", "Grouping", "Offsets", "PollMillis", "FindTimes", "AdminNothing")),
    ("0.10", ("Records010", "Consuming", "Grouping", "Offsets", "PollMillis", "FindNothing", "AdminNothing")),
    ("0.9", ("Records09", "Consuming", "Grouping", "Offsets", "PollMillis", "FindNothing", "AdminNothing")),
    ("0.8.2", ("Records08", "Consuming08", "Groups08", "AdminNothing")),
)  # fmt: skip
# What comes with the administration of a release: before 0.11 there is neither that nor a transaction.
JAVA_SINCE_011 = ("AdminTopics", "Transactions011")
JAVA_MORE = {
    "AdminNothing": ("TransactionsNothing",),
    "Admin011": (*JAVA_SINCE_011, "SendOffsetsOfGroup"),
    "Admin11": (*JAVA_SINCE_011, "SendOffsetsOfGroup"),
    "Admin28": (*JAVA_SINCE_011, "SendOffsetsOfMember"),
}
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
NODE_PACKAGES = ("kafka-node@5.0.0", "no-kafka@3.4.4", "kafkajs@2.2.4", "snappyjs@0.7.0")
# A dependency of a dependency of kafka-node 5 whose newest release is not everywhere to be had.
NODE_OVERRIDES = {"typedarray.prototype.slice": "1.0.5"}
GO_OLDEST = (1, 21)  # the first that fetches the newer release a module asks for
GO_PLACE = "/usr/local/go/bin"  # where it is unpacked to by custom, not always on PATH

STEP_TIMEOUT_S = 900
ATTEMPTS = 3  # most steps fetch something


class Unavailable(Exception):
    """An environment cannot be made here; the message is the reason, one line."""


class StepFailed(Unavailable):
    """A program said that it could not do its step; tried again it may, for most fetch something."""


class Recipe(NamedTuple):
    """How one environment is made: `build` fills an empty directory, `text` is what it depends on."""

    text: str
    build: Callable[[Path], None]


def cache_directory() -> Path:
    """Where environments are kept: TIDELOG_CACHE, else `.cache` of the repository."""
    return Path(os.environ.get("TIDELOG_CACHE") or REPOSITORY / ".cache") / "clients"


def run(command: list[str], cwd: Path | None = None) -> str:
    """Run one set-up step; Unavailable names the program and its last line when it fails."""
    program = Path(command[0]).name
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{program} is not installed")
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{program} did not finish in {STEP_TIMEOUT_S} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()] or ["no output"]
        raise StepFailed(f"{program} failed: {lines[-1].strip()[:200]}")
    return done.stdout


def build_kcat(target: Path) -> None:
    """Unpack Debian's kcat and what it links into the directory; needs no root."""
    command = ["apt-get", "download", "-qq", *KCAT_PACKAGES]
    try:
        run(command, cwd=target)
    except Unavailable:
        # Fresh container images carry no package lists.
        run(["apt-get", "update", "-qq"])
        run(command, cwd=target)
    for package in sorted(target.glob("*.deb")):
        run(["dpkg", "-x", str(package), str(target / "root")])
        package.unlink()


def build_librdkafka_1x(target: Path) -> None:
    """Take librdkafka 1.x out of the wheel that bundles it; driven through ctypes, so any Python will do."""
    machine = platform.machine()
    platforms = [f"manylinux{tag}_{machine}" for tag in ("_2_17", "2014", "_2_28")]
    flags = [flag for name in platforms for flag in ("--platform", name)]
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--python-version",
            "3.10",
            "--implementation",
            "cp",
            *flags,
            "-d",
            str(target),
            f"confluent-kafka=={LIBRDKAFKA_1X}",
        ]
    )
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        bundled = [name for name in archive.namelist() if ".libs/" in name and ".so" in name]
        archive.extractall(target, bundled)
    wheel.unlink()
    library = next((target / "confluent_kafka.libs").glob("librdkafka-*.so*"))
    library.rename(target / "librdkafka.so.1")


def build_librdkafka_09(target: Path) -> None:
    """Build librdkafka 0.9 from the sources in an npm package; it needs a C compiler and zlib's header."""
    run(["npm", "pack", "--silent", LIBRDKAFKA_09], cwd=target)
    (package,) = target.glob("*.tgz")
    with tarfile.open(package) as archive:
        archive.extractall(target, filter="data")
    sources = target / "package" / "deps" / "librdkafka"
    run(
        [str(sources / "configure"), "--no-download", "--disable-ssl", "--disable-sasl"],
        cwd=sources,
    )
    if "WITH_ZLIB 1" not in (sources / "config.h").read_text():
        raise Unavailable("zlib.h is not installed (Debian: zlib1g-dev)")
    run(["make", "-C", "src", "librdkafka.so.1"], cwd=sources)
    (sources / "src" / "librdkafka.so.1").rename(target / "librdkafka.so.1")
    shutil.rmtree(target / "package")
    package.unlink()


def venv_builder(*packages: str) -> Callable[[Path], None]:
    """A virtual environment with these packages of PyPI."""

    def build(target: Path) -> None:
        run([sys.executable, "-m", "venv", "--without-pip", str(target)])
        pip = [sys.executable, "-m", "pip", "--python", str(target / "bin" / "python")]
        run([*pip, "install", "-q", *packages])

    return build


def java_poms(target: Path) -> None:
    """One Maven project with a module per client version: one Maven start fetches them all."""
    head = (
        "<project><modelVersion>4.0.0</modelVersion><groupId>tidelog</groupId><version>1</version>"
    )
    modules = "".join(f"<module>{version}</module>" for version in JAVA_CLIENTS)
    (target / "pom.xml").write_text(
        f"{head}<artifactId>all</artifactId><packaging>pom</packaging>"
        f"<modules>{modules}</modules></project>\n"
    )
    for version in JAVA_CLIENTS:
        # The consumers of 0.8.2 are in the broker's own jar.
        artifacts = ["kafka-clients", *(["kafka_2.11"] if version.startswith("0.8.") else [])]
        dependencies = "".join(
            f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
            for artifact in artifacts
        )
        (target / version).mkdir()
        (target / version / "pom.xml").write_text(
            f"{head}<artifactId>client-{version}</artifactId>"
            f"<dependencies>{dependencies}</dependencies></project>\n"
        )


def numbers(version: str) -> list[int]:
    """A release as numbers to compare by."""
    return [int(number) for number in version.split(".")]


def java_sources(version: str) -> list[str]:
    """The driver's source files for one client version."""
    classes = next(c for since, c in JAVA_GENERATIONS if numbers(version) >= numbers(since))
    more = JAVA_MORE[classes[-1]]
    return [
        f"{name}.java"
        for name in ("Driver", "Lines", "Json", "Producing", "Sending", *classes, *more)
    ]


def build_java(target: Path) -> None:
    """Fetch the jars of every client version and compile the driver against each."""
    if shutil.which("javac") is None:
        raise Unavailable("javac is not installed")
    java_poms(target)
    run(["mvn", "-q", "-B", MAVEN_COPY, "-DoutputDirectory=lib"], cwd=target)
    for version in JAVA_CLIENTS:
        directory = target / version
        sources = [str(DRIVERS / "java" / name) for name in java_sources(version)]
        run(
            [
                "javac",
                "-nowarn",
                "-encoding",
                "UTF-8",
                "-cp",
                str(directory / "lib" / "*"),
                "-d",
                str(directory / "classes"),
                *sources,
            ]
        )


def build_node(target: Path) -> None:
    """Install the JavaScript clients; their optional native snappy is replaced by a pure one."""
    (target / "package.json").write_text(
        json.dumps({"private": True, "overrides": NODE_OVERRIDES}) + "\n"
    )
    run(
        [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--omit=optional",
            *NODE_PACKAGES,
        ],
        target,
    )
    shutil.copytree(DRIVERS / "node" / "snappy", target / "node_modules" / "snappy")


def go_version(go: str) -> tuple[int, ...]:
    """The release of a Go installation, without what comes after its numbers."""
    found = re.search(r"go(\d+)\.(\d+)", run([go, "env", "GOVERSION"]))
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def build_go(target: Path) -> None:
    """Build the driver of the Go clients; their versions stand in its go.mod."""
    go = shutil.which("go") or shutil.which("go", path=GO_PLACE)
    if go is None or go_version(go) < GO_OLDEST:
        raise Unavailable(f"go {'.'.join(map(str, GO_OLDEST))} or newer is not installed")
    sources = target / "sources"
    shutil.copytree(DRIVERS / "go", sources)
    run([go, "build", "-o", str(target / "driver"), "."], cwd=sources)
    shutil.rmtree(sources)


def source_text(*patterns: str) -> str:
    """The content of driver files that are compiled or copied at set-up."""
    files = sorted(path for pattern in patterns for path in DRIVERS.glob(pattern))
    return "".join(path.read_text() for path in files)


RECIPES: dict[str, Recipe] = {
    "kcat": Recipe(" ".join(KCAT_PACKAGES), build_kcat),
    "librdkafka-1.x": Recipe(f"{LIBRDKAFKA_1X} {platform.machine()}", build_librdkafka_1x),
    "librdkafka-0.9": Recipe(f"{LIBRDKAFKA_09} {platform.machine()}", build_librdkafka_09),
    **{
        f"kafka-python-{version}": Recipe(
            " ".join((version, *KAFKA_PYTHON_CODECS)),
            venv_builder(f"kafka-python=={version}", *KAFKA_PYTHON_CODECS),
        )
        for version in KAFKA_PYTHON
    },
    "java": Recipe(" ".join(JAVA_CLIENTS) + source_text("java/*.java"), build_java),
    "go": Recipe(source_text("go/*"), build_go),
    "node": Recipe(
        " ".join(NODE_PACKAGES) + json.dumps(NODE_OVERRIDES) + source_text("node/snappy/*"),
        build_node,
    ),
}
# What is no client of the matrix: made when a test of the long profile wants it.
ON_DEMAND = {"quixstreams": Recipe(QUIXSTREAMS, venv_builder(QUIXSTREAMS))}


def digest(recipe: Recipe) -> str:
    """What the stamp says: the recipe, and the Python a virtual environment hangs on."""
    text = f"{recipe.text}\n{recipe.build.__qualname__}\n{sys.version}\n{sys.base_prefix}\n"
    return hashlib.sha256(text.encode()).hexdigest()


def environment(name: str, *, make: bool = True, attempts: int = 1) -> Path:
    """The directory of one environment, made now if need be; Unavailable if it cannot be.

    `make=False` only looks: an environment that is not there is Unavailable. Where a step fails, it is made
    again from the beginning, up to so many times in all.
    """
    recipe = (RECIPES | ON_DEMAND)[name]
    target = cache_directory() / name
    stamp = target / ".stamp"
    wanted = digest(recipe)
    if stamp.exists() and stamp.read_text() == wanted:
        return target
    if not make:
        raise Unavailable("its environment is not set up (python tests/clients/environments.py)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several runs may want it at once
        if not (stamp.exists() and stamp.read_text() == wanted):
            build(recipe, target, attempts)
            stamp.write_text(wanted)
    return target


def build(recipe: Recipe, target: Path, attempts: int) -> None:
    """Follow the recipe in an empty directory, again from the beginning where a step fails."""
    for attempt in range(1, attempts + 1):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        try:
            recipe.build(target)
        except StepFailed:
            if attempt == attempts:
                raise
        else:
            return


def main(names: list[str]) -> int:
    """Make the named environments, or all; the exit code is 0 even if some cannot be: they are skips."""
    missing = 0
    for name in names or list(RECIPES):
        began = time.monotonic()
        try:
            environment(name, attempts=ATTEMPTS)
            outcome = "ready"
        except Unavailable as reason:
            outcome = f"skipped: {reason}"
            missing += 1
        print(f"{name:<22} {time.monotonic() - began:6.1f} s  {outcome}", flush=True)
    print(f"{missing} environment(s) skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
