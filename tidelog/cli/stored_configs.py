"""`tidelog configs list` and `remove`: what is stored in the metadata, without asking a broker.

They are the way in when no client gets in any more. `--directory` names the first log directory of a
broker that is stopped: while one runs there, both are refused. Metadata that several brokers share are
named as `tidelog serve` is told of them, with `--config` and `--set metadata.store=...`; brokers that run
see a removal within seconds. Values that may be secrets are hidden.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.metadata import records
from tidelog.broker.metadata.local import FILE, metadata_of, shared_path
from tidelog.broker.metadata.sqlite.store import SqliteStore
from tidelog.broker.metadata.store import Delete, MetadataError, unchanged_since
from tidelog.broker.quotas import entity
from tidelog.cli.brokers.adopt import settings_given
from tidelog.cli.configs import DELETING
from tidelog.cli.output import print_answer, print_json, print_table
from tidelog.cli.shared import CommandError, UsageError, confirm
from tidelog.config.ignored import shown
from tidelog.config.load import BROKER_NAMES, DEFAULT_NAMES, TOPIC_NAMES
from tidelog.config.setting import written
from tidelog.protocol.errors import BrokerError
from tidelog.storage.directory.log_directory import LogDirectory, LogDirectoryError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from tidelog.broker.metadata.records import Record
    from tidelog.broker.metadata.store import KeyValue, KeyValueStore, Operation

BROKERS = "brokers"


class _Stored(NamedTuple):
    """One key of the metadata that holds settings or quotas, and whose they are."""

    owner: str  # brokers, broker:2, topic:orders, quota:ip
    pair: KeyValue
    record: Record
    values: Mapping[str, Any]

    def without(self, names: Iterable[str]) -> Operation:
        """Returns what removes some of them."""
        left = {name: value for name, value in self.values.items() if name not in names}
        if isinstance(self.record, records.TopicRecord):
            return records.put_topic(self.record._replace(configs=left))
        if self.owner == BROKERS:
            return records.put_broker_configs(left)
        if not left:
            return Delete(self.pair.key)
        if isinstance(self.record, records.QuotasRecord):
            return records.put_quotas(records.quota_of(self.pair.key), left)
        return records.put_own_configs(records.own_configs_of(self.pair.key), left)


def run_stored(options: argparse.Namespace) -> None:
    """Lists what is stored, or removes some of it. Raises CommandError."""
    directory = None if options.directory is None else Path(options.directory)
    if directory is not None and (options.set or options.config):
        raise UsageError("--directory, or --config and --set, name the metadata: not both")
    lock = None if directory is None else _locked(directory)
    try:
        asyncio.run(_run(_store(directory, options), options))
    except (MetadataError, BrokerError, ValueError, OSError) as error:
        raise CommandError(str(error)) from None
    finally:
        if lock is not None:
            lock.release()


def _locked(directory: Path) -> LogDirectory:
    """Keeps brokers away from a directory. Raises CommandError."""
    if not (directory / FILE).is_file():
        raise UsageError(
            f"there is no metadata in {directory}: --directory is the first of a broker's log.dirs; "
            "those in etcd are named with --set metadata.store=etcd://HOST:PORT"
        )
    try:
        return LogDirectory(directory)
    except (LogDirectoryError, OSError) as error:
        raise CommandError(f"{error}: stop it first") from None


def _store(directory: Path | None, options: argparse.Namespace) -> KeyValueStore:
    """Returns the store that the options name, not opened yet. Raises CommandError."""
    if directory is not None:
        return SqliteStore(directory / FILE, poll_interval_s=None)
    config = settings_given(options)
    if not config.cluster.metadata_store:
        raise UsageError(
            "--directory names the first log directory of a broker, or --set metadata.store=... "
            "what its brokers share"
        )
    path = shared_path(config)
    if path is None:
        return metadata_of(config).store
    if not path.is_file():
        raise CommandError(f"there is no metadata in {path}")
    return SqliteStore(path, poll_interval_s=None)


async def _run(store: KeyValueStore, options: argparse.Namespace) -> None:
    await store.open()
    try:
        found = [each for pair in (await store.read()).pairs if (each := _read(pair)) is not None]
        if options.action == "list":
            _list(found, as_json=options.json)
        else:
            await _remove(store, found, options)
    finally:
        await store.close()


def _read(pair: KeyValue) -> _Stored | None:
    """Returns what a key holds; None for a key without settings. Raises ValueError."""
    key = pair.key
    if key == records.BROKER_CONFIGS:
        owner = BROKERS
    elif key.startswith(records.OWN_CONFIGS_PREFIX):
        owner = f"broker:{key.removeprefix(records.OWN_CONFIGS_PREFIX)}"
    elif key.startswith(records.QUOTA_PREFIX):
        owner = f"quota:{key.removeprefix(records.QUOTA_PREFIX)}"
    elif key.startswith(records.TOPIC_PREFIX):
        owner = "topic"
    else:
        return None
    record = records.read(key, pair.value)
    if isinstance(record, records.TopicRecord):
        return _Stored(f"topic:{record.name}", pair, record, record.configs)
    if isinstance(record, records.QuotasRecord):
        return _Stored(owner, pair, record, record.quotas)
    assert isinstance(record, records.BrokerConfigsRecord)
    return _Stored(owner, pair, record, record.configs)


def _list(found: Iterable[_Stored], *, as_json: bool) -> None:
    rows = [
        (each.owner, name, _visible(name, value))
        for each in found
        for name, value in sorted(each.values.items())
    ]
    if as_json:
        print_json({"stored": [{"of": of, "name": name, "value": v} for of, name, v in rows]})
    else:
        print_table(("of", "setting", "value"), rows, wraps="value")


def _visible(name: str, value: Any) -> str:
    if name in BROKER_NAMES or name in DEFAULT_NAMES or name in TOPIC_NAMES:
        return str(value)
    return str(written(value)) if name in entity.LEAST else shown(name, value)


async def _remove(
    store: KeyValueStore, found: Iterable[_Stored], options: argparse.Namespace
) -> None:
    """Removes settings of one owner. Raises CommandError."""
    names = list(options.names)
    if not names:
        raise UsageError("no setting is named")
    of = options.of
    chosen = next((each for each in found if each.owner == of), None)
    for name in names:
        if chosen is None or name not in chosen.values:
            raise UsageError(
                f"nothing is stored of {of} under {name}: tidelog configs list shows what is"
            )
    assert chosen is not None
    if any(name.startswith(DELETING) for name in names):
        confirm(
            options,
            f"Without {', '.join(names)} the next round of retention may delete records. Remove it?",
            "the next round of retention may delete records then: add --yes to remove it",
            "nothing was changed",
        )
    compares = unchanged_since(chosen.pair.key, chosen.pair.mod_revision)
    if await store.transact(compares, (chosen.without(names),)) is None:
        raise CommandError(f"the settings of {of} were changed meanwhile: try again")
    print_answer(options, {"of": of, "removed": names}, f"Removed {', '.join(names)} of {of}.")
