"""The registration files of this broker's log directories: read at the start, written before a session.

Promises that a directory of another broker, or of another cluster, is refused before anything in it
is changed. All methods read or write files and run in a thread, one at a time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.broker.metadata.local import FILE as METADATA_FILE
from tidelog.broker.metadata.local import shared_path
from tidelog.broker.metadata.names import new_id, written_id
from tidelog.storage import filenames
from tidelog.storage.directory.log_directory import LogDirectoryError
from tidelog.storage.directory.registration_file import (
    OWN_STORE,
    DirectoryState,
    RegistrationFileError,
    begun,
    read_state,
    write_state,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tidelog.broker.metadata.image import Image
    from tidelog.config import BrokerConfig

log = logging.getLogger("tidelog.cluster")

_SHOWN_LOGS = 20


class Directories:
    """The log directories of one broker, and what their registration files hold."""

    def __init__(
        self, paths: Iterable[Path], boot_id: str, cluster: str, broker: int, store: str
    ) -> None:
        """Reads the files of directories that exist.

        `boot_id` is that of the machine now; `cluster` and `broker` are the ids of who uses them, and
        `store` is the metadata store. Raises OSError, and LogDirectoryError if another broker or cluster
        uses one.
        """
        self.boot_id = boot_id
        self._cluster, self._broker, self._store = cluster, broker, store
        self._states = {path: _read(path) for path in paths}
        for path, state in self._states.items():
            if state is not None:
                self._check(path, state)
        self._new_ids = {path: written_id(new_id()) for path in self._states}
        self._failed: set[Path] = set()  # since this process began, whatever the files hold

    @property
    def by_path(self) -> Mapping[Path, str]:
        """The ids of the directories; one without a file has the id that it will get."""
        return {
            path: self._new_ids[path] if state is None else state.directory
            for path, state in self._states.items()
        }

    @property
    def states(self) -> tuple[DirectoryState | None, ...]:
        """What the files hold; None for each that is missing or damaged.

        A directory with a log that has failed in this process counts as failed, even if its file does not.
        """
        return tuple(state and self._marked(path, state) for path, state in self._states.items())

    def has_used(self, incarnation: str) -> bool:
        """Returns whether a session with this incarnation was begun on one of the directories.

        As this process has locked them, the process of that session has ended, or is this one.
        """
        return any(
            incarnation in (state.incarnation, state.previous)
            for state in self._states.values()
            if state is not None
        )

    def log_missing(self, image: Image) -> None:
        """Logs which directories of the last registration are not here, and which logs therefore.

        To be called before logs are made anew.
        """
        registered = image.registrations.get(self._broker)
        if registered is None:
            return
        missing = set(registered.record.directories) - set(self.by_path.values())
        if not missing:
            return
        logs = [
            filenames.partition_directory(topic.name, index)
            for topic in image.topics.values()
            for index, record in enumerate(topic.assignments)
            if self._broker in record.replicas
        ]
        absent = [name for name in logs if not any((path / name).exists() for path in self._states)]
        shown = ",".join(sorted(absent)[:_SHOWN_LOGS])
        log.error(
            "log directories missing or emptied",
            extra={
                "advice": "their logs are copied from other brokers that have replicas",
                "registered": len(registered.record.directories),
                "missing": len(missing),
                "here": ",".join(map(str, self._states)),
                "logs": len(absent),
                "missing_logs": shown,
            },
        )

    def begin(self, incarnation: str, registered: str) -> None:
        """Makes the files durable that must be there before a session begins.

        `registered` is the incarnation that is registered so far, "" if the start is unclean. A log
        that has failed in this process stays noted: it is as bad in the next session. Raises OSError.
        """
        for path, state in self._states.items():
            if state is None or state.incarnation != incarnation:
                next_state = begun(
                    state,
                    self._new_ids[path],
                    incarnation,
                    registered,
                    self.boot_id,
                    cluster=self._cluster,
                    broker=self._broker,
                    store=self._store,
                )
                self._write(path, self._marked(path, next_state))

    def note_use(self) -> None:
        """Records that logs change outside of any session. Raises OSError.

        A directory that may have lost something already belongs to no registration any more.
        """
        for path, state in self._states.items():
            if state is None:
                continue
            is_whole = state.is_stopped or state.boot_id == self.boot_id != ""
            used = state if is_whole else state._replace(incarnation="", previous="")
            self._write(
                path, used._replace(is_stopped=False, boot_id=self.boot_id, store=self._store)
            )

    def note_failure(self, path: Path) -> None:
        """Records that a log in a directory has failed. Raises OSError."""
        self._failed.add(path)
        state = self._states[path]
        if state is not None and not state.has_failed:
            self._write(path, state._replace(has_failed=True))

    def note_end(self, *, is_flushed: bool, failed: Iterable[Path]) -> None:
        """Records that the process ends in order, if everything `is_flushed`.

        `failed` are the directories in which a log has failed. Raises OSError.
        """
        for path in failed:
            self.note_failure(path)
        for path, state in self._states.items():
            if is_flushed and state is not None:
                self._write(path, state._replace(is_stopped=True, boot_id=self.boot_id))

    def _marked(self, path: Path, state: DirectoryState) -> DirectoryState:
        return state._replace(has_failed=True) if path in self._failed else state

    def _check(self, path: Path, state: DirectoryState) -> None:
        if state.cluster != self._cluster:
            raise LogDirectoryError(
                f"log directory {path} belongs to broker {state.broker} of cluster {state.cluster}, "
                f"and this is cluster {self._cluster}: give this broker another directory "
                f"(--log-dirs; of a container another volume), or start broker {state.broker} with "
                f"the metadata of its cluster (--set metadata.store=sqlite:PATH or etcd://..., or "
                f"--brokers)"
            )
        if state.broker != self._broker:
            raise LogDirectoryError(
                f"log directory {path} belongs to broker {state.broker} of this cluster: start it "
                f"with --set node.id={state.broker} (KAFKA_NODE_ID={state.broker} of a container), or "
                f"give broker {self._broker} another directory (--log-dirs; of a container another "
                f"volume)"
            )

    def _write(self, path: Path, state: DirectoryState) -> None:
        write_state(path, state)
        self._states[path] = state


def _read(path: Path) -> DirectoryState | None:
    try:
        return read_state(path)
    except RegistrationFileError as error:
        log.warning("registration file ignored", extra={"directory": str(path), "reason": error})
        return None


def check_directories(config: BrokerConfig, paths: Sequence[Path]) -> None:
    """Refuses directories of another cluster, before metadata are made. Raises LogDirectoryError."""
    if config.cluster.metadata_store:
        check_metadata_beside(paths, shared_path(config))
    elif not (paths[0] / METADATA_FILE).exists():
        _check_not_shared(paths)


def _check_not_shared(paths: Iterable[Path]) -> None:
    """Raises LogDirectoryError if a directory was used last with metadata that brokers share."""
    for path in paths:
        state = _read(path)
        if state is None and not (path / filenames.REGISTRATION_FILE).exists():
            continue
        if state is None or state.store != OWN_STORE:
            of = (
                "a cluster"
                if state is None
                else f"broker {state.broker} of cluster {state.cluster}"
            )
            raise LogDirectoryError(
                f"log directory {path} belongs to {of}: start that broker with the metadata of its "
                f"cluster (--brokers, or --set metadata.store=sqlite:PATH)"
            )


def delete_lost_stores(paths: Iterable[Path], cluster: str) -> None:
    """Deletes registration files that name the metadata of an only broker which are gone. Raises OSError.

    `cluster` is the id of the metadata with which the logs are opened now.
    """
    for path in paths:
        state = _read(path)
        if state is not None and state.store == OWN_STORE and state.cluster != cluster:
            (path / filenames.REGISTRATION_FILE).unlink()


def check_metadata_beside(paths: Iterable[Path], shared: Path | None) -> None:
    """Raises LogDirectoryError if a log directory has metadata other than those that are shared.

    `shared` is None if those are in no file.
    """
    for path in paths:
        own = path / METADATA_FILE
        if own.exists() and (shared is None or own.resolve() != shared.resolve()):
            raise LogDirectoryError(
                f"log directory {path} has metadata of its own, so it belongs to another cluster: "
                f"give this broker another directory (--log-dirs); "
                f"'tidelog serve --log-dirs {path}' serves that one"
            )
