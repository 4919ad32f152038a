"""`tidelog adopt`: the directories of a Kafka cluster become those of a cluster here.

`inspect` is given on each machine when Kafka has stopped, and writes what its directories hold into a
file. `apply` takes the files of all brokers, and writes topics, leaders and settings into the metadata
store of the new brokers, which must be empty. docs/migration.md has the whole sequence.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli.arguments import add_actions, add_flag, add_json, add_many, setting_of
from tidelog.cli.output import print_answer, working
from tidelog.cli.shared import CommandError, UsageError
from tidelog.text import some

if TYPE_CHECKING:
    import argparse

    from tidelog.broker.logs.adoption.plan import AdoptionPlan
    from tidelog.config import BrokerConfig


def add_adopt(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog adopt`."""
    actions = {
        "inspect": (_inspect, "write down what one broker of Kafka has left"),
        "apply": (_apply, "begin a cluster with what all brokers have left"),
    }
    for action, one in add_actions(parser, actions, lambda _: None, None):
        if action == "inspect":
            what = "all log.dirs of the broker, and its metadata.log.dir, separated by commas"
            one.add_argument("--log-dirs", metavar="DIR", required=True, help=what)
            one.add_argument("--out", metavar="FILE", required=True, help="the file to write")
        else:
            what = "what inspect has written, one per broker"
            one.add_argument("from_file", metavar="INVENTORY", nargs="+", type=Path, help=what)
            add_settings(one)
            add_flag(one, "--dry-run", "only say what it would do")
        add_json(one)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `settings_given` reads."""
    what = "a properties file of the brokers; may be given many times"
    add_many(parser, "--config", "FILE", what)
    what = "one of their settings, such as metadata.store=etcd://HOST:2379; may be given many times"
    add_many(parser, "--set", "KEY=VALUE", what)


def _inspect(options: argparse.Namespace) -> None:
    from tidelog.broker.clock import SystemClock, machine_boot_id
    from tidelog.broker.logging import structured_log
    from tidelog.broker.logs.adoption.errors import AdoptionError
    from tidelog.broker.logs.adoption.inventory import take_inventory
    from tidelog.broker.logs.adoption.written import write_inventory
    from tidelog.protocol.errors import BrokerError
    from tidelog.storage.directory.log_directory import LogDirectoryError

    directories = [Path(each) for each in options.log_dirs.split(",") if each]
    defaults = settings_given(options).topic_defaults
    missing = [each for each in directories if not each.is_dir()]
    if missing or not directories:
        raise UsageError(f"{missing[0] if missing else '--log-dirs'} is not a directory")
    structured_log.set_up("error")  # each log of Kafka would be warned of
    try:
        now_ms, boot_id = SystemClock().now_ms(), machine_boot_id()
        with working(f"reading the logs in {options.log_dirs}"):
            found = take_inventory(directories, now_ms=now_ms, boot_id=boot_id, defaults=defaults)
        write_inventory(Path(options.out), found)
    except (AdoptionError, LogDirectoryError, BrokerError, OSError) as error:
        raise CommandError(str(error)) from None
    topics = 0 if found.metadata is None else len(found.metadata.topics)
    done = {"broker": found.broker, "cluster": found.cluster_id, "logs": len(found.logs)}
    print_answer(
        options,
        done,
        f"Broker {found.broker} of Kafka's cluster {found.cluster_id}: "
        f"{some(len(found.logs), 'log')}, and metadata of {some(topics, 'topic')}. "
        f"Written to {options.out}.",
    )


def _apply(options: argparse.Namespace) -> None:
    from tidelog.broker.logs.adoption.errors import AdoptionError
    from tidelog.broker.logs.adoption.plan import make_plan
    from tidelog.broker.logs.adoption.written import read_inventory
    from tidelog.broker.metadata.store import MetadataError
    from tidelog.protocol.errors import BrokerError

    config = settings_given(options)
    if not config.cluster.metadata_store:
        raise UsageError(
            "--set metadata.store=sqlite:PATH or etcd://HOST:PORT names where the cluster is to begin"
        )
    try:
        plan = make_plan([read_inventory(each) for each in options.from_file], config)
        if not options.dry_run:
            with working("writing to the metadata store"):
                asyncio.run(_write(config, plan))
    except (AdoptionError, MetadataError, BrokerError, OSError) as error:
        raise CommandError(str(error)) from None
    _say(plan, options)


def _say(plan: AdoptionPlan, options: argparse.Namespace) -> None:
    partitions = [record for topic in plan.topics for record in topic.assignments]
    behind = sum(len(record.isr) < len(record.replicas) for record in partitions)
    counts = {"topics": len(plan.topics), "partitions": len(partitions), "to_catch_up": behind}
    would = "would begin" if options.dry_run else "begins"
    print_answer(
        options,
        {"cluster": plan.cluster_id, **counts, "notes": plan.notes},
        *plan.notes,
        f"Cluster {plan.cluster_id} {would} with {some(len(plan.topics), 'topic')} and "
        f"{some(len(partitions), 'partition')}; {behind} of them have replicas that must catch up.",
    )


async def _write(config: BrokerConfig, plan: AdoptionPlan) -> None:
    from tidelog.broker.logs.adoption.apply import apply
    from tidelog.broker.metadata.local import metadata_of

    store = metadata_of(config).store
    await store.open()
    try:
        await apply(store, plan)
    finally:
        await store.close()


def settings_given(options: argparse.Namespace) -> BrokerConfig:
    """Returns a broker's settings by `--config` and `--set`. Raises CommandError."""
    from tidelog.config import ConfigError, load

    overrides = dict(map(setting_of, getattr(options, "set", ())))
    files = [Path(each) for each in getattr(options, "config", ())]
    try:
        return load(files, os.environ if files or overrides else {}, overrides)
    except ConfigError as error:
        raise UsageError(str(error)) from None
