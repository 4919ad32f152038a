"""What the commands that ask a running broker share: its address, its answers, tables and mistakes.

They ask over HTTP what Kafka's protocol cannot say, and change things over Kafka's protocol. Times are told
as they were given: the broker reads them, by its own clock. Exit status: 0 when done, 1 when it could not be
done, 2 for a mistake in the command line. Every mistake is one sentence on standard error.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from tidelog.control import ControlClient, ControlError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

FAILED, USAGE = 1, 2

HTTP_ADDRESS = "127.0.0.1:8080"
BROKER_ADDRESS = "127.0.0.1:9092"
NONE = -1  # the offset of what is not found

_TIMEOUT_S = 600.0  # a log that somebody else wrote is read once before it is explained
_MISTAKES = frozenset({"BAD_REQUEST", "BAD_TIME", "BAD_OFFSET", "NO_TIME", "INVALID_CONFIG"})
_CONNECT_S = 10.0
_LEAST_WRAPPED = 26  # a time and what follows it
_WIDE = 500  # columns, where nobody looks at a terminal
_BROKEN_PIPE = 1
_UNIT = 1024


class CommandError(Exception):
    """What a command could not do: a sentence, and the exit status."""

    def __init__(self, sentence: str, status: int = FAILED) -> None:
        super().__init__(sentence)
        self.status = status


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options that every one of these commands has."""
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        default=HTTP_ADDRESS,
        help=f"the broker's HTTP port ({HTTP_ADDRESS})",
    )
    parser.add_argument("--json", action="store_true", help="the answer as JSON, for scripts")


def add_topic(parser: argparse.ArgumentParser) -> None:
    """A topic, and one of its partitions or all."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partition", metavar="N", help="one partition alone")


def run(
    name: str, command: Callable[[argparse.Namespace], None], options: argparse.Namespace
) -> int:
    """Run a command to its end; the exit status."""
    try:
        command(options)
        sys.stdout.flush()
    except CommandError as error:
        sys.stderr.write(f"tidelog {name}: {error}\n")
        return error.status
    except BrokenPipeError:  # whoever reads has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        sys.stderr.write(f"tidelog {name}: interrupted\n")
        return FAILED
    return 0


# --- asking --------------------------------------------------------------------------------------


def ask(address: str, *path: str, query: Iterable[tuple[str, str | None]] = ()) -> dict[str, Any]:
    """What the broker's HTTP port answers; parameters that are None are left out.

    Raises CommandError.
    """
    _check_address("--http", address)
    given = urlencode([(name, value) for name, value in query if value is not None])
    url = "/v1/" + "/".join(quote(part, safe="") for part in path) + (f"?{given}" if given else "")
    client = ControlClient(address, timeout_s=_TIMEOUT_S)
    try:
        return client.ask("GET", url)
    except ControlError as error:
        raise CommandError(str(error), USAGE if error.name in _MISTAKES else FAILED) from None
    except (http.client.HTTPException, ValueError, KeyError, TypeError):
        raise CommandError(f"what answers at {address} is not the HTTP port of tidelog") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(
            f"nothing answers at http://{address} ({reason}): is a broker running there? "
            "--http HOST:PORT names another"
        ) from None
    finally:
        client.close()


def _check_address(option: str, address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65_536):
        raise CommandError(f"{option} {address}: expected HOST:PORT", USAGE)


def delete_records(address: str, topic: str, topic_id: str, offsets: dict[int, int]) -> None:
    """Have the log of each partition begin at an offset, over Kafka's protocol.

    `topic_id` is that of the topic that was looked at: another of its name is left alone. Raises
    CommandError.
    """
    _check_address("--broker", address)
    try:
        from kafka import KafkaAdminClient, TopicPartition  # noqa: PLC0415 - only here, and optional
        from kafka.errors import KafkaError  # noqa: PLC0415 - as above
    except ImportError:
        raise CommandError("deleting needs kafka-python 3: pip install 'tidelog[admin]'") from None
    import logging  # noqa: PLC0415 - as above
    import socket  # noqa: PLC0415 - as above

    host, _, port = address.rpartition(":")
    try:  # the client would try again and again
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except OSError as error:
        raise CommandError(
            f"no broker answers at {address} ({error.strerror or error}): is one running there? "
            "--broker HOST:PORT names another"
        ) from None
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what goes wrong is raised as well
    try:
        admin = KafkaAdminClient(bootstrap_servers=address, client_id="tidelog")
    except (KafkaError, OSError, ValueError) as error:
        raise CommandError(
            f"what answers at {address} is no Kafka broker ({type(error).__name__})"
        ) from None
    try:
        (found,) = admin.describe_topics([topic])
        if str(found.get("topic_id")) != topic_id:
            raise CommandError(
                f"the topic {topic} at --broker {address} is not the one that --http looked at: "
                "nothing was deleted"
            )
        admin.delete_records({TopicPartition(topic, n): at for n, at in offsets.items()})
    except (KafkaError, OSError) as error:
        raise CommandError(f"not all was deleted: {error}") from None
    finally:
        admin.close()


# --- telling -------------------------------------------------------------------------------------


def tell_json(told: Any) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(told) + "\n")


def tell(*lines: str) -> None:
    """Lines of text."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def tell_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    wraps: str | None = None,
) -> None:
    """A table, columns of numbers (`right`) flush right; `wraps` may go over several lines.

    Nothing is cut off: where a terminal is too narrow it breaks the lines itself.
    """
    from rich import box  # noqa: PLC0415 - not needed for --json
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column != wraps,
            overflow="fold",
            min_width=_LEAST_WRAPPED if column == wraps else None,
        )
    for row in rows:
        table.add_row(*row)
    width = _WIDE
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    console = Console(file=sys.stdout, width=_WIDE, highlight=False, markup=False)
    needed = console.measure(table).minimum
    console.print(table, width=max(width, needed), soft_wrap=False)


def shown(told: dict[str, Any], name: str, missing: str = "-") -> str:
    """A time as people read it; in milliseconds where no calendar reaches."""
    if told[f"{name}_ms"] is None:
        return missing
    text: str | None = told[name]
    return str(told[f"{name}_ms"]) if text is None else text.replace(".000Z", "Z")


def size_of(count: int) -> str:
    """A number of bytes as people read it."""
    if count < _UNIT:
        return f"{count} B"
    value, units = count / _UNIT, iter(("KiB", "MiB", "GiB"))
    for unit in units:
        if value < _UNIT:
            return f"{value:.1f} {unit}"
        value /= _UNIT
    return f"{value:.1f} TiB"


def counted(count: int, what: str) -> str:
    """A number of things: "1 record", "2 records"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
