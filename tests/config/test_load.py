"""How sources are merged, what wins, and what is refused with which sentence."""

from __future__ import annotations

import pytest

from tidelog.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    ConfigError,
    TopicConfig,
    load,
    reconfigured,
    topic_config,
    usable,
)
from tidelog.config.ignored import IGNORED_BROKER_NAMES, IGNORED_TOPIC_NAMES
from tidelog.config.load import BROKER_NAMES, DEFAULT_NAMES, TOPIC_NAMES
from tidelog.config.setting import LONG_MAX, Type, written

HOUR_MS = 3_600_000


def with_flags(settings):
    return load(None, {}, settings)


def refusal(settings):
    with pytest.raises(ConfigError) as caught:
        with_flags(settings)
    return str(caught.value)


def test_nothing_set_gives_kafkas_defaults():
    config = with_flags({})
    assert config.num_partitions == 1
    assert config.auto_create_topics_enable is True
    assert config.limits.socket_request_max_bytes == 104_857_600
    assert config.topic_defaults.max_message_bytes == 1_048_588
    assert config.listeners == (("PLAINTEXT", "127.0.0.1", 9092),)  # not Kafka's: every interface
    assert config.http.address is None
    assert config.sources == {}
    assert config.topic_defaults == TopicConfig()


def test_flags_win_over_environment_over_file(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.dirs=/a\nfetch.max.bytes=5000\n", encoding="utf-8")
    environ = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_DIRS": "/b"}
    config = load(file, environ, {"num.partitions": "4"})
    assert (config.num_partitions, config.log_dirs, config.fetches.fetch_max_bytes) == (
        4,
        ("/b",),
        5000,
    )
    assert config.sources == {
        "num.partitions": "command line",
        "log.dirs": "environment variable KAFKA_LOG_DIRS",
        "fetch.max.bytes": str(file),
    }


def test_a_stronger_source_wins_under_whatever_name(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=5\n", encoding="utf-8")
    assert load(file, {}, {"log.retention.hours": "2"}).topic_defaults.retention_ms == 2 * HOUR_MS


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-7"}, -1),
        ({"log.retention.ms": "-1"}, -1),
        ({}, 168 * HOUR_MS),
    ],
)
def test_retention_takes_the_finest_unit(given, expected):
    assert with_flags(given).topic_defaults.retention_ms == expected


def test_roll_takes_the_finest_unit():
    assert with_flags({"log.roll.hours": "2"}).topic_defaults.segment_ms == 2 * HOUR_MS
    both = with_flags({"log.roll.hours": "2", "log.roll.ms": "7"})
    assert both.topic_defaults.segment_ms == 7


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("num.partitions", "many", "expected an integer"),
        ("num.partitions", "1_000", "expected an integer"),
        ("num.partitions", "0", "the least possible value is 1"),
        ("num.partitions", "2147483648", "expected an integer of 32 bits"),
        ("log.retention.bytes", "9223372036854775808", "expected an integer of 64 bits"),
        ("auto.create.topics.enable", "yes", "expected true or false"),
        ("log.cleaner.min.cleanable.ratio", "nan", "expected a number"),
        ("log.message.timestamp.type", "createtime", "expected one of CreateTime, LogAppendTime"),
        ("log.retention.hours", "0", "expected a positive number, or -1"),
        ("log.roll.hours", "0", "the least possible value is 1"),
        ("compression.gzip.level", "0", "expected 1 to 9, or -1 for the codec's own choice"),
        (
            "log.message.format.version",
            "0.7",
            "there is no such Kafka release; they go from 0.8.0 to 4.x",
        ),
        ("log.dirs", " , ", "expected at least one directory"),
    ],
)
def test_a_mistake_is_one_sentence(name, value, sentence):
    told = f"{name}={value.strip()} (from command line): {sentence}"
    assert refusal({name: value}) == told


def test_a_name_that_is_no_setting_is_told():
    unknown = "there is no setting {} (from command line)"
    assert refusal({"zzqqxx": "1"}) == unknown.format("zzqqxx")
    misspelt = refusal({"log.retenton.ms": "1"})
    assert misspelt == unknown.format("log.retenton.ms") + "; did you mean log.retention.ms?"
    gone = "port (from command line) is no longer a setting: use listeners"
    assert refusal({"port": "9092"}) == gone


def test_the_weaker_of_two_values_is_checked_too():
    assert "log.retention.hours=x" in refusal({"log.retention.hours": "x", "log.retention.ms": "1"})


@pytest.mark.parametrize(
    "given",
    [
        {"node.id": "1", "broker.id": "2"},
        {
            "log.message.timestamp.difference.max.ms": "1",
            "max.message.time.difference.ms": "2",
        },
    ],
)
def test_two_names_of_one_setting_must_agree(given):
    first, second = given
    assert refusal(given) == (
        f"{first}={given[first]} and {second}={given[second]} are two names of one setting "
        "and contradict each other: give one of them"
    )
    with_flags(dict.fromkeys(given, "5"))


def test_the_names_of_kip_32_work_broker_wide():
    defaults = with_flags(
        {
            "message.timestamp.type": "LogAppendTime",
            "max.message.time.difference.ms": "9",
            "message.format.version": "0.9.0",
        }
    ).topic_defaults
    assert defaults.message_timestamp_type == "LogAppendTime"
    assert defaults.timestamp_window == (9, 9)
    assert defaults.target_magic == 0


def test_broker_id_minus_one_lets_the_broker_choose():
    assert with_flags({"broker.id": "-1"}).cluster.node_id == 1
    assert with_flags({"broker.id": "7"}).cluster.node_id == 7


def test_kafkas_other_settings_are_accepted_and_named():
    config = with_flags(
        {
            "zookeeper.connect": "zk:2181",
            "password.encoder.secret": "hunter2",
            "confluent.license": "hunter3",
            "num.io.threads": "8",
        }
    )
    assert config.ignored == {
        "zookeeper.connect": "zk:2181",
        "password.encoder.secret": "(hidden)",
        "confluent.license": "(hidden)",
        "num.io.threads": "8",
    }


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the properties file .*: No such file"):
        load(tmp_path / "missing", {}, {})
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load(binary, {}, {})


@pytest.mark.parametrize(
    ("protocol", "wanted", "oldest"),
    [("0.9.0", "0.10.0", "0.10.0"), ("0.10.2", "0.11.0-IV0", "0.11.0"), ("0.9.0", "2.8", "0.11.0")],
)
def test_a_message_format_newer_than_the_inter_broker_protocol_is_refused(protocol, wanted, oldest):
    settings = {"inter.broker.protocol.version": protocol}
    said = f"set inter.broker.protocol.version to {oldest} or later on every broker first"
    with pytest.raises(ConfigError, match=f"log.message.format.version={wanted} is .*{said}"):
        load(None, {}, {**settings, "log.message.format.version": wanted})
    with pytest.raises(
        ConfigError, match=r"log.message.format.version=3.0-IV1 is message format 2"
    ):
        load(None, {}, settings)  # the default is the newest


@pytest.mark.parametrize(
    ("protocol", "wanted", "magic"),
    [("0.9.0", "0.8.2", 0), ("0.10.0-IV0", "0.10.2", 1), ("0.11.0", "3.0", 2), ("4.1", "0.9.0", 0)],
)
def test_a_message_format_may_be_as_new_as_the_inter_broker_protocol(protocol, wanted, magic):
    settings = {"inter.broker.protocol.version": protocol, "message.format.version": wanted}
    config = load(None, {}, settings)
    assert config.topic_defaults.target_magic == magic <= config.newest_magic


# --- topics --------------------------------------------------------------------------------------


def topic(overrides, **broker):
    return topic_config(with_flags({k.replace("_", "."): v for k, v in broker.items()}), overrides)


def test_a_topic_without_settings_has_the_brokers():
    broker = with_flags({"log.segment.bytes": "1000"})
    assert topic_config(broker, {}) is broker.topic_defaults
    assert topic_config(broker, {"retention.ms": "0"}).segment_bytes == 1000


def test_a_topics_misspelt_setting_is_refused():
    with pytest.raises(
        ConfigError, match=r"no setting retention\.mss; did you mean retention\.ms\?"
    ):
        topic({"retention.mss": "1"})
    with pytest.raises(ConfigError, match=r"no setting num\.partitions"):
        topic({"num.partitions": "1"})


def test_a_topics_contradiction_is_refused():
    with pytest.raises(ConfigError, match="two names of one setting"):
        topic({"max.message.time.difference.ms": "5", "message.timestamp.difference.max.ms": "6"})
    both = {"max.message.time.difference.ms": "5", "message.timestamp.difference.max.ms": "5"}
    assert topic(both).timestamp_window == (5, 5)
    assert topic({"max.message.time.difference.ms": "5"}).timestamp_window == (5, 5)


def test_ignored_topic_settings_are_accepted():
    assert topic({"remote.storage.enable": "true"}) == TopicConfig()


@pytest.mark.parametrize(
    ("difference", "before", "after", "window"),
    [
        (None, None, None, (None, None)),
        (5, None, None, (5, 5)),
        (None, 3, None, (3, None)),
        (5, 3, None, (3, 5)),
        (5, None, 0, (5, 0)),
        (5, None, LONG_MAX, (5, None)),
    ],
)
def test_one_sided_bounds_win_where_set(difference, before, after, window):
    given = {"difference": difference, "before": before, "after": after}
    own = {f"message.timestamp.{k}.max.ms": str(v) for k, v in given.items() if v is not None}
    assert topic(own).timestamp_window == window


def test_a_topics_own_window_replaces_the_brokers():
    broker = with_flags(
        {"log.message.timestamp.before.max.ms": "3", "log.message.timestamp.after.max.ms": "4"}
    )
    assert broker.topic_defaults.timestamp_window == (3, 4)
    own = {"message.timestamp.difference.max.ms": "9"}
    assert topic_config(broker, own).timestamp_window == (9, 9)
    own["message.timestamp.after.max.ms"] = "8"
    assert topic_config(broker, own).timestamp_window == (9, 8)
    assert topic_config(broker, {"message.timestamp.before.max.ms": "1"}).timestamp_window == (1, 4)


@pytest.mark.parametrize(
    ("release", "magic"),
    [
        *[(release, 0) for release in ("0.8.0", "0.8.2", "0.9.0", "0.9.0.1", "0.9")],
        *[(release, 1) for release in ("0.10.0", "0.10.0-IV0", "0.10.2.2", "0.10.2-IV0")],
        *[
            (release, 2)
            for release in ("0.11.0-IV0", "1.0", "1.1-IV0", "2.8", "3.0-IV1", "3.9-IV0")
        ],
        *[(release, 2) for release in ("4.0", "4.4-IV2", "4.10")],
    ],
)
def test_a_release_writes_its_message_format(release, magic):
    assert topic({"message.format.version": release}).target_magic == magic


@pytest.mark.parametrize(
    "release", ["", "0.7.2", "1.2", "2.9", "3.10", "5.0", "latest", "0.10.x", "-1"]
)
def test_there_are_no_other_releases(release):
    with pytest.raises(ConfigError, match=r"message\.format\.version"):
        topic({"message.format.version": release})


@pytest.mark.parametrize(
    ("name", "codec"),
    [("producer", None), ("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)],
)
def test_compression_type_is_a_codec(name, codec):
    assert topic({"compression.type": name}).compression == codec


@pytest.mark.parametrize(
    ("text", "policy", "compacted"),
    [
        ("delete", ("delete",), False),
        ("compact", ("compact",), True),
        ("compact, delete", ("compact", "delete"), True),
    ],
)
def test_cleanup_policy_is_a_list(text, policy, compacted):
    config = topic({"cleanup.policy": text})
    assert (config.cleanup_policy, config.is_compacted) == (policy, compacted)


KAFKA_4 = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_a_broker_starts_with_kafkas_own_file(tmp_path):
    """config/server.properties of Kafka 4: it advertises the controller, which is not bound here."""
    file = tmp_path / "server.properties"
    file.write_text(KAFKA_4, encoding="utf-8")
    assert [str(each) for each in load(file, {}, {}).listeners] == ["PLAINTEXT://:9092"]


# --- changes at run time -------------------------------------------------------------------------


def test_changes_lie_over_everything_and_can_be_taken_back():
    broker = with_flags({"log.retention.ms": "5", "num.io.threads": "3"})
    changed = reconfigured(broker, {"log.retention.hours": "1"})
    assert changed.topic_defaults.retention_ms == HOUR_MS
    assert changed.ignored == broker.ignored
    assert reconfigured(changed, {}) == broker


def test_what_needs_a_restart_cannot_be_changed():
    with pytest.raises(ConfigError, match="listeners cannot be changed while the broker runs"):
        reconfigured(with_flags({}), {"listeners": "PLAINTEXT://:1"})


# --- the declarations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting", [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()], ids=lambda s: s.name
)
def test_every_declaration_is_sound(setting):
    assert setting.doc.endswith(".")
    if setting.default:
        assert written(setting.parse(setting.default)) == setting.default
    if setting.name in ("listeners", "advertised.listeners"):
        assert setting.type is Type.LIST


def test_attributes_are_the_names_with_underscores():
    for attribute, setting in (*TOPIC_SETTINGS.items(), *BROKER_SETTINGS.items()):
        assert attribute.rpartition(".")[2] == setting.name.replace(".", "_")


def test_no_name_is_declared_and_ignored():
    assert not IGNORED_BROKER_NAMES & {*BROKER_NAMES, *DEFAULT_NAMES}
    assert not IGNORED_TOPIC_NAMES & set(TOPIC_NAMES)


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("max.connections", "0", "20"),
        ("max.connections", "19", "20"),
        ("max.connections.per.ip.overrides", "192.0.2.1:99,127.0.0.1:0", "20"),
        ("max.connection.creation.rate", "0", "20"),
    ],
)
def test_what_nobody_could_connect_to_undo_is_for_the_start_alone(name, value, least):
    assert with_flags({name: value})
    with pytest.raises(ConfigError, match=f"the least possible value .* is {least}"):
        reconfigured(with_flags({}), {name: value})


@pytest.mark.parametrize("name", ["confluent.a", "rsm.config.a", "no.such.setting"])
def test_what_kafka_does_not_have_cannot_be_stored(name):
    with pytest.raises(ConfigError, match="there is no setting"):
        reconfigured(with_flags({}), {name: "1"})


def test_what_is_stored_and_refused_now_is_left_out():
    stored = {"listeners": "PLAINTEXT://:1", "confluent.a": "b", "log.retention.ms": "7"}
    here = {"no.such.setting": "1", "max.connections.per.ip": "29"}
    config, refused = usable(with_flags({"max.connections": "50"}), stored, here)
    assert set(refused) == {"listeners", "confluent.a", "no.such.setting"}
    assert config.connections.max_connections == 50
    assert config.connections.max_connections_per_ip == 29
    assert config.topic_defaults.retention_ms == 7


@pytest.mark.parametrize("given", [{}, {"max.connections": "50"}])
@pytest.mark.parametrize(
    ("name", "stored", "holds"),
    [
        ("max.connections", "0", "20"),
        ("max.connections.per.ip", "10", "20"),
        ("max.connection.creation.rate", "1", "20"),
        (
            "max.connections.per.ip.overrides",
            "203.0.113.9:0,127.0.0.1:0,[::1]:3,10.0.0.1:99",
            "203.0.113.9:0,127.0.0.1:20,::1:20,10.0.0.1:99",
        ),
    ],
)
def test_a_stored_limit_holds_as_far_as_it_can_be_undone(given, name, stored, holds):
    """Without it nobody would be limited."""
    for of_all, own in (({name: stored}, {}), ({}, {name: stored})):
        config, refused = usable(with_flags(given), of_all, own)
        assert written(getattr(config.connections, name.replace(".", "_"))) == holds
        assert set(refused) == {name}
        assert refused[name].endswith(f"{name}={holds} holds")


@pytest.mark.parametrize("other", ["", "10.0.0.2:99"])
def test_what_contradicts_the_start_is_left_out(other):
    only_one = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5"}
    config, refused = usable(with_flags(only_one), {"max.connections.per.ip.overrides": other})
    assert set(refused) == {"max.connections.per.ip.overrides"}
    assert config == with_flags(only_one)


def test_a_login_in_an_address_is_not_repeated():
    with pytest.raises(ConfigError, match="expected") as caught:
        with_flags({"metadata.store": "etcd://root:hunter2@h:2379"})
    assert "hunter2" not in str(caught.value)
