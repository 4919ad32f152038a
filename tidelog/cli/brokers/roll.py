"""`tidelog cluster roll`: restarts the brokers one after another, without a pause for clients.

A broker is restarted when every partition is fully replicated, and the next one when it is back: it
has a new session, serves, and is in sync in all its partitions again. The controller is the last one.
Each broker reads its settings anew. The supervisor of `tidelog serve --brokers N` restarts its brokers
when it is asked; for brokers that something else runs, such as systemd, a command is given.

If something goes wrong, nothing more is restarted, and the command says how to go on.
"""

from __future__ import annotations

import subprocess
import sys
import time
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import add_within, number_given, wait_given
from tidelog.cli.brokers.gathering import quickly
from tidelog.cli.escaping import escaped
from tidelog.cli.output import print_json
from tidelog.cli.shared import CommandError, UsageError, addresses_in
from tidelog.control import ControlError
from tidelog.text import are, first_of, some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

DATA = "data"
_WITHIN = "5m"
POLL_S = 0.2
_OK = "ok"


class UnderSupervisor:
    """Restarts brokers of `tidelog serve --brokers N`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._starts: dict[int, int] = {}

    def brokers(self) -> dict[int, dict[str, Any]]:
        """Returns what the supervisor says of each broker. Raises CommandError."""
        return {each["broker"]: each for each in self._ask({"ask": "brokers"})["brokers"]}

    def restart(self, broker: int) -> None:
        """Begins to restart a broker. Raises CommandError if its settings are wrong."""
        self._starts[broker] = self.brokers()[broker]["starts"]
        self._ask({"ask": "restart", "broker": broker})

    def check(self, broker: int) -> None:
        """Raises CommandError if the broker was started again, and has ended since."""
        found = self.brokers()[broker]
        began = self._starts[broker] + 1
        if found["starts"] > began or (found["starts"] == began and found["pid"] is None):
            raise CommandError(
                f"broker {broker} was started again and ended with status {found['status']}: the log "
                "of tidelog serve says why"
            )

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        from tidelog.supervisor.control import NoSupervisor, ask

        try:
            answer = ask(self._directory, question)
        except NoSupervisor as error:
            raise CommandError(
                f"{error}: --log-dirs names the directory of tidelog serve --brokers, and "
                "--restart-with a command that restarts other brokers"
            ) from None
        if "error" in answer:
            raise CommandError(str(answer["error"]))
        return answer


class ByCommand:
    """Restarts brokers with a command in which {broker} stands for the id."""

    def __init__(self, command: str) -> None:
        self._command = command

    def restart(self, broker: int) -> None:
        """Runs the command. Raises CommandError if it fails."""
        command = self._command.replace("{broker}", str(broker))
        status = subprocess.run(command, shell=True, check=False).returncode  # noqa: S602 - it is the user's own
        if status:
            raise CommandError(f"{command!r} ended with status {status}")

    def check(self, broker: int) -> None:
        """A command says nothing of how the broker goes on."""


class View:
    """The cluster, as any broker that answers over HTTP tells it."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = list(addresses)

    def look(self, names: Iterable[str] = ()) -> dict[str, Any] | None:
        """Returns the answer of `/v1/cluster`; None if no broker answers.

        It has sessions by one of the `names`, if the answer of any broker has.
        """
        answer = None
        for answer in self._answers():
            if not names or any(name in answer["brokers"][0] for name in names):
                break
        return answer

    def session(self, broker: int) -> dict[str, object]:
        """Returns what brokers of every version call the session of a broker."""
        found: dict[str, object] = {}
        for answer in self._answers():
            found |= _session(answer, broker)
        return found

    def _answers(self) -> Iterator[dict[str, Any]]:
        for address in list(self._addresses):
            try:
                answer = quickly(address)
            except (OSError, HTTPException, ControlError, ValueError):
                continue
            told = [each["http"] for each in answer["brokers"] if each["http"]]
            self._addresses = list(dict.fromkeys([*self._addresses, *told]))
            yield answer


class Roll:
    """One round of restarts."""

    def __init__(
        self,
        restarter: UnderSupervisor | ByCommand,
        view: View,
        *,
        within_s: float,
        say: Callable[[str], None],
    ) -> None:
        """`say` tells the user how it goes, line by line."""
        self._restarter, self._view = restarter, view
        self._within_s, self._say = within_s, say
        self.left: list[int] = []
        self.done: list[dict[str, Any]] = []

    def run(self, brokers: Sequence[int]) -> None:
        """Restarts brokers; the controller is the last one. Raises CommandError.

        `left` has the brokers that were not restarted.
        """
        answer = self._wait(None, {}, "before the first restart")
        known = {each["broker"]: each for each in answer["brokers"]}
        if not brokers:
            brokers = [number for number, each in known.items() if each["state"] == "serving"]
        for broker in brokers:
            if known.get(broker, {}).get("state") != "serving":
                raise CommandError(f"broker {broker} does not serve, so it is not restarted")
        controller = (answer["controller"] or {}).get("broker")
        self.left = sorted(brokers, key=lambda broker: (broker == controller, broker))
        alone = [each for each in answer["partitions"] if len(each["replicas"]) == 1]
        if alone:
            self._say(
                f"{some(len(alone), 'partition')} with one replica cannot be reached while that "
                f"broker restarts: {_named(alone)}"
            )
        while self.left:
            broker = self.left[0]
            session = self._view.session(broker)
            began_s = time.monotonic()
            self._restarter.restart(broker)
            answer = self._wait(broker, session, f"after the restart of broker {broker}")
            took_s = round(time.monotonic() - began_s, 1)
            self.done.append({"broker": broker, "took_s": took_s})
            self._say(f"broker {broker}: restarted and in sync again after {took_s} s")

    def _wait(self, broker: int | None, session: Mapping[str, object], when: str) -> dict[str, Any]:
        """Waits until all is well, and a broker has another session than `session`.

        Returns what was seen then. Raises CommandError.
        """
        deadline_s = time.monotonic() + self._within_s
        while True:
            answer = self._view.look(session.keys())
            if broker is not None:
                self._restarter.check(broker)
            reason = "no broker answers over HTTP"
            if answer is not None:
                reason = _not_yet(answer, broker, session)
                is_back = broker is not None and _is_back(answer, broker, session)
                if is_back and self.left and self.left[0] == broker:
                    self.left.pop(0)  # whatever comes, it has been restarted
                if not reason:
                    return answer
            if time.monotonic() >= deadline_s:
                raise CommandError(f"{reason}, {self._within_s:.0f} s {when}")
            time.sleep(POLL_S)


def add_roll(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog cluster roll`."""
    what = f"the directory of tidelog serve --brokers, which restarts them ({DATA})"
    parser.add_argument("--log-dirs", metavar="DIR", help=what)
    what = "a command that restarts a broker, such as 'systemctl restart tidelog@{broker}'"
    parser.add_argument("--restart-with", metavar="COMMAND", help=what)
    parser.add_argument("brokers", metavar="ID", nargs="*", help="these brokers alone (all)")
    add_within(parser, _WITHIN, "how long to wait for each broker to be in sync again")


def run_roll(options: argparse.Namespace) -> None:
    """Runs `tidelog cluster roll`. Raises CommandError."""
    brokers = _ids(options.brokers)
    within_s = wait_given(options)
    if options.restart_with is not None and options.log_dirs is not None:
        raise UsageError("--restart-with and --log-dirs: give one of them")
    restarter: UnderSupervisor | ByCommand
    if options.restart_with is not None:
        restarter = ByCommand(options.restart_with)
        addresses = addresses_in(options.http)
    else:
        restarter = UnderSupervisor(Path((options.log_dirs or DATA).split(",")[0]))
        told = [each["http"] for each in restarter.brokers().values() if each["http"]]
        if not told:
            raise CommandError("the brokers serve no HTTP: start tidelog serve with --http")
        addresses = told
    roll = Roll(restarter, View(addresses), within_s=within_s, say=_say)
    try:
        roll.run(brokers)
    except CommandError as error:
        raise CommandError(f"{error}.{_go_on(options, roll.left)}", error.status) from None
    except KeyboardInterrupt:
        raise CommandError(f"interrupted.{_go_on(options, roll.left)}") from None
    if options.json:
        print_json({"restarted": roll.done})
    else:
        _say(f"{some(len(roll.done), 'broker')} restarted; every partition is fully replicated.")


def _say(line: str) -> None:
    """Tells how it goes, on standard error: a script reads the other stream."""
    sys.stderr.write(escaped(line) + "\n")
    sys.stderr.flush()


def _ids(given: Iterable[str]) -> list[int]:
    return sorted({number_given("ID", part) for text in given for part in text.split(",")})


def _session(answer: Mapping[str, Any], broker: int) -> dict[str, object]:
    """Returns what an answer calls a broker's session: that of an older broker has the epoch alone."""
    found = _broker_in(answer, broker)
    return {name: found[name] for name in ("session", "epoch") if name in found}


def _broker_in(answer: Mapping[str, Any], broker: int) -> Mapping[str, Any]:
    return next((each for each in answer["brokers"] if each["broker"] == broker), {})


def _is_back(answer: Mapping[str, Any], broker: int, session: Mapping[str, object]) -> bool:
    now = _session(answer, broker)
    is_another = any(now[name] != session[name] for name in now.keys() & session.keys())
    return is_another and _broker_in(answer, broker)["state"] == "serving"


def _not_yet(answer: Mapping[str, Any], broker: int | None, session: Mapping[str, object]) -> str:
    """Returns what is waited for; an empty text if nothing is."""
    if broker is not None and not _is_back(answer, broker, session):
        return f"broker {broker} has not come back"
    behind = [each for each in answer["partitions"] if each["state"] != _OK]
    if behind:
        return (
            f"{are(len(behind), 'partition')} not fully replicated: {_named(behind)} "
            "(see tidelog cluster status --unhealthy)"
        )
    return ""


def _named(partitions: Sequence[Mapping[str, Any]]) -> str:
    return first_of([f"{each['topic']}-{each['partition']}" for each in partitions], 3)


def _go_on(options: argparse.Namespace, left: Sequence[int]) -> str:
    """Returns how to go on with the brokers that are left."""
    if not left:
        return ""
    parts = ["tidelog cluster roll", *map(str, left)]
    if options.restart_with is not None:
        parts.append(f"--http {options.http} --restart-with '{options.restart_with}'")
    elif options.log_dirs is not None:
        parts.append(f"--log-dirs {options.log_dirs}")
    return f" Nothing else was restarted. To go on: {' '.join(parts)}"
