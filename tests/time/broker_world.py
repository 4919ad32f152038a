"""A broker of its own process with a manual clock, and the commands of the scripts, which act on it.

    broker now= [SETTING=VALUE ...]         start one, with these settings; its clock shows `now`
    create topic= [SETTING=VALUE ...]       make a topic
    set [topic=] SETTING=VALUE ...          change settings of a topic, or of the broker
    unset [topic=] name=SETTING             take it back
    describe [topic=] name=SETTING          its value, where that comes from, and below it all synonyms
    produce now= topic= ts=[..]             a batch of format 2
    commit group= topic= offset=            commit an offset
    committed group= topic=                 the offset that is committed
    metric name= topic=                     what /metrics says of a topic
    stop-and-start                          stop cleanly, start
    kill-and-start                          kill -9, start

`now=` is what the broker's clock shows, for any command. Requests are made, and answers taken apart, by
the codec of the tests: no code of ours judges itself.
"""

from __future__ import annotations

import contextlib

from tests.broker import asking
from tests.broker.api.test_describe_configs import ask as describe
from tests.broker.members import commit, fetched
from tests.broker.subject import Subject, eventually
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tests.time.scripts import arguments, times_in
from tidelog.protocol.error_codes import ErrorCode

_SET, _DELETE = 0, 1
_SOURCES = {
    1: "topic",
    2: "broker, changed",
    3: "brokers, changed",
    4: "broker, given",
    5: "default",
}


def _named(code):
    return f"{ErrorCode(code).name} ({code})"


class BrokerWorld:
    """One broker, and a connection to it."""

    def __init__(self, path):
        self._path, self._now = path, 0
        self._broker = self._connection = None
        self._opened = contextlib.ExitStack()

    def close(self):
        self._opened.close()

    def run(self, command):
        """Runs a command; returns what it gave."""
        name, options = arguments(command)
        now = int(options.pop("now", self._now))
        if name != "broker" and now != self._now:
            self._broker.clock.freeze(now)
        self._now = now
        return list(getattr(self, "do_" + name.replace("-", "_"))(options))

    def do_broker(self, settings):
        settings = {"clock": "manual", "clock.start.ms": self._now, **settings}
        self._broker = self._opened.enter_context(Subject(self._path, settings))
        self._connect()
        return ()

    def _connect(self):
        self._connection = self._opened.enter_context(self._broker.connect())

    def do_create(self, options):
        topic = options.pop("topic")
        given = {name.replace(".", "_"): value for name, value in options.items()}
        asking.create(self._connection, topic, **given)
        return ()

    def _alter(self, options, *changes):
        code, sentence = asking.alter(self._connection, *self._resource(options), *changes)
        if code:
            yield _named(code)
            yield f"  {sentence}"

    def _resource(self, options):
        topic = options.pop("topic", None)
        return (asking.BROKER, "1") if topic is None else (asking.TOPIC, topic)

    def do_set(self, options):
        changes = [(k, _SET, v) for k, v in options.items() if k != "topic"]
        return self._alter(options, *changes)

    def do_unset(self, options):
        return self._alter(options, (options["name"], _DELETE, None))

    def do_describe(self, options):
        kind, resource = self._resource(options)
        result = describe(self._connection, kind, resource, [options["name"]])
        for entry in result["configs"]:
            yield f"{entry['name']}={entry['value']} ({_SOURCES[entry['config_source']]})"
            for each in entry["synonyms"]:
                yield f"  {each['name']}={each['value']} ({_SOURCES[each['source']]})"

    def do_produce(self, options):
        records = recordset.batch([Rec(time, b"v") for time in times_in(options["ts"])])
        answer = asking.produce(self._connection, options["topic"], records)
        code = answer["error_code"]
        yield _named(code) if code else f"offset={answer['base_offset']}"

    def do_commit(self, options):
        wanted = options["group"], options["topic"], int(options["offset"])
        codes = []

        def is_answered():
            codes.append(commit(self._connection, *wanted))
            return codes[-1] != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        eventually(is_answered, what="the groups to be loaded")
        yield "committed" if not codes[-1] else _named(codes[-1])

    def do_committed(self, options):
        yield f"offset={fetched(self._connection, options['group'], options['topic'])[0]}"

    def do_metric(self, options):
        yield f"{self._broker.metric(options['name'], topic=options['topic']):g}"

    def do_stop_and_start(self, _):
        return self._again(self._broker.stop)

    def do_kill_and_start(self, _):
        return self._again(self._broker.kill)

    def _again(self, end):
        self._connection.close()
        end()
        self._broker.restart({"clock.start.ms": self._now})
        self._connect()
        return ()
