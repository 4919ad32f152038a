"""etcd for tests: one member or several, that can be killed, paused and started again.

Needs `etcd` on the PATH (on Debian: apt install etcd-server). A member's data are in memory where
there is such a file system: no test loses the power.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.oracle.apache_kafka import free_ports
from tidelog.kept_ports import KeptPorts

PROGRAM = "etcd"
START_S = 60


def need_etcd():
    """Skips the test where etcd, or what speaks to it, is not installed."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("etcd is not on the PATH (on Debian: apt install etcd-server)")
    pytest.importorskip("aetcd", reason="aetcd is not installed (make setup)")


class EtcdFailed(Exception):
    """A member did not come up; the text has the end of its log."""


class Etcd:
    """The members of one etcd; `start` before anything else, `close` in the end."""

    def __init__(self, size=1, *, election_ms=500, options=(), tls=None):
        """`options` are further ones of each member.

        `tls` names the files of an authority, a certificate and its key: members and clients show it.
        """
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="etcd-", dir=memory))
        self.numbers = range(size)
        self._election_ms, self._options = election_ms, tuple(options)
        self._ports = [(0, 0)] * size
        self._processes = [None] * size
        self._kept = [KeptPorts() for _ in self.numbers]  # for a restart
        self._compacted = 1
        self._root_password = None
        self._scheme, self._context = "http", None
        if tls is not None:
            ca, certificate, key = map(str, tls)
            self._options += ("--trusted-ca-file", ca, "--client-cert-auth")
            self._options += ("--cert-file", certificate, "--key-file", key)
            self._scheme, self._context = "https", ssl.create_default_context(cafile=ca)
            self._context.load_cert_chain(certificate, key)

    @property
    def endpoints(self):
        """HOST:PORT of each member, for clients."""
        return [f"127.0.0.1:{clients}" for clients, _ in self._ports]

    def url(self, name="tidelog", endpoints=None):
        """What `metadata.store` says."""
        return f"etcd://{','.join(endpoints or self.endpoints)}/{name}"

    def start(self):
        """Starts all members on free ports; returns itself when they answer."""
        for last in (False, False, True):
            free = free_ports(2 * len(self.numbers))
            self._ports = list(zip(free[::2], free[1::2], strict=True))
            self._release_ports()
            for number in self.numbers:
                self._begin(number)
            try:
                for number in self.numbers:
                    self.wait(number)
            except EtcdFailed:  # somebody else may have taken a port
                for number in self.numbers:
                    self.kill(number)
                    shutil.rmtree(self._data(number), ignore_errors=True)
                if last:
                    raise
            else:
                return self
        raise AssertionError

    def close(self):
        """Ends all members, and removes their data."""
        for number in self.numbers:
            self.kill(number)
        self._release_ports()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, number):
        """Kill -9 of a member; no effect if it does not run."""
        self._end(number, signal.SIGKILL)

    def stop(self, number):
        """Stops a member in order."""
        self._end(number, signal.SIGTERM)

    def pause(self, number):
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number):
        self._processes[number].send_signal(signal.SIGCONT)

    def restart(self, number, *, wait=True):
        """Starts a member again on its ports and its data."""
        self._begin(number)
        if wait:
            self.wait(number)

    def wipe(self, number):
        """Removes the data of a member that does not run."""
        shutil.rmtree(self._data(number))

    def wait(self, number):
        """Waits until a member answers, and so has a leader."""
        deadline = time.monotonic() + START_S
        while not self._is_healthy(number):
            if self._processes[number].poll() is not None or time.monotonic() > deadline:
                raise EtcdFailed(self._log(number).read_text()[-3000:])
            time.sleep(0.02)

    def leader(self):
        """The number of the member that leads."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for number in self.numbers:
                if self._processes[number] is not None and self._leads(number):
                    return number
            time.sleep(0.05)
        raise EtcdFailed("nobody leads")

    def is_running(self, number):
        return self._processes[number] is not None

    def compact(self, revision, number=0):
        """Forgets what was before a revision; no effect if that is forgotten already."""
        if revision > self._compacted:
            self.control("kv/compaction", {"revision": str(revision), "physical": True}, number)
            self._compacted = revision

    def disarm(self):
        """Ends the alarm of a member that had no space."""
        (raised,) = self.control("maintenance/alarm", {"action": "GET"})["alarms"]
        self.control("maintenance/alarm", {"action": "DEACTIVATE", **raised})

    def enable_users(self, root_password="root"):
        """Lets etcd ask everybody for a user; `add_user` goes on as root."""
        self.add_user("root", root_password, {})
        self.control("auth/enable", {})
        self._root_password = root_password

    def add_user(self, name, password, prefixes):
        """Adds a user, with a role of its name that may read and write below these prefixes."""
        self.control("auth/user/add", {"name": name, "password": password})
        self.control("auth/role/add", {"name": name})
        for first in prefixes:
            end = first[:-1] + chr(ord(first[-1]) + 1)
            key, range_end = (base64.b64encode(each.encode()).decode() for each in (first, end))
            permission = {"permType": "READWRITE", "key": key, "range_end": range_end}
            self.control("auth/role/grant", {"name": name, "perm": permission})
        self.control("auth/user/grant", {"user": name, "role": name})

    def control(self, path, body, number=0):
        """The answer of a member to a call of etcd's JSON gateway, such as `maintenance/status`."""
        headers = {}
        if self._root_password is not None and path != "auth/authenticate":
            root = {"name": "root", "password": self._root_password}
            token = self.control("auth/authenticate", root, number)["token"]
            headers["Authorization"] = token
        request = urllib.request.Request(
            f"{self._scheme}://{self.endpoints[number]}/v3/{path}",
            data=json.dumps(body).encode(),
            headers=headers,
        )
        with urllib.request.urlopen(request, timeout=10, context=self._context) as answer:
            return json.load(answer)

    def _begin(self, number):
        clients, peers = self._ports[number]
        names = [f"m{each}=http://127.0.0.1:{self._ports[each][1]}" for each in self.numbers]
        with self._log(number).open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [
                    PROGRAM,
                    *("--name", f"m{number}", "--data-dir", str(self._data(number))),
                    *("--listen-client-urls", f"{self._scheme}://127.0.0.1:{clients}"),
                    *("--advertise-client-urls", f"{self._scheme}://127.0.0.1:{clients}"),
                    *("--listen-peer-urls", f"http://127.0.0.1:{peers}"),
                    *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}"),
                    *("--initial-cluster", ",".join(names)),
                    *("--heartbeat-interval", str(self._election_ms // 10)),
                    *("--election-timeout", str(self._election_ms)),
                    *self._options,
                ],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"]},
            )

    def _end(self, number, how):
        process = self._processes[number]
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(how)
                process.send_signal(signal.SIGCONT)
            process.wait(20)
            self._processes[number] = None
            self._kept[number].keep(f"127.0.0.1:{port}" for port in self._ports[number])

    def _release_ports(self):
        for kept in self._kept:
            kept.release()

    def _is_healthy(self, number):
        address = f"{self._scheme}://{self.endpoints[number]}/health"
        try:
            with urllib.request.urlopen(address, timeout=5, context=self._context) as answer:
                return json.load(answer)["health"] == "true"
        except (OSError, urllib.error.HTTPError):
            return False

    def _leads(self, number):
        try:
            status = self.control("maintenance/status", {}, number=number)
        except OSError:
            return False
        return status.get("leader") == status["header"]["member_id"]

    def _data(self, number):
        return self.folder / f"m{number}"

    def _log(self, number):
        return self.folder / f"m{number}.log"


@contextlib.contextmanager
def running_etcd(size=1, **options):
    """An etcd that is started, and closed in the end; skips the test where there is none."""
    need_etcd()
    server = Etcd(size, **options)
    try:
        yield server.start()
    finally:
        server.close()
