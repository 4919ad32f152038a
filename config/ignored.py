"""Kafka's settings that are accepted but have no effect here.

The names are those of the broker and topic settings of Apache Kafka 3.9.1, 4.1.1 and 4.4.0 that
neither broker/ nor topic.py declares. So a properties file written for Kafka is accepted: the
broker logs one line for each of these settings. Those that promise safety stop the start, unless they
ask for nothing (unserved.py). Any other name is an error.
"""

from __future__ import annotations

_IGNORED_BROKER_NAMES = """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name
    auto.include.jmx.reporter background.threads
    broker.heartbeat.interval.ms broker.id.generation.enable client.quota.callback.class config.providers
    connection.failed.authentication.delay.ms connections.max.reauth.ms
    control.plane.listener.name controlled.shutdown.max.retries
    controlled.shutdown.retry.backoff.ms controller.performance.always.log.threshold.ms
    controller.performance.sample.period.ms controller.quorum.append.linger.ms
    controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
    controller.quorum.retry.backoff.ms controller.quorum.voters
    controller.socket.timeout.ms cordoned.log.dirs
    create.topic.policy.class.name delegation.token.expiry.check.interval.ms
    delegation.token.expiry.time.ms delegation.token.master.key delegation.token.max.lifetime.ms
    delegation.token.secret.key delete.records.purgatory.purge.interval.requests
    early.start.listeners eligible.leader.replicas.enable
    errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
    fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable
    group.consumer.assignment.interval.ms group.consumer.assignor.offload.enable
    group.consumer.assignors group.consumer.heartbeat.interval.ms
    group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms
    group.consumer.max.session.timeout.ms group.consumer.max.size
    group.consumer.migration.policy group.consumer.min.assignment.interval.ms
    group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
    group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms
    group.coordinator.append.linger.ms group.coordinator.background.threads
    group.coordinator.cached.buffer.max.bytes group.coordinator.new.enable
    group.coordinator.rebalance.protocols group.coordinator.threads
    group.share.assignment.interval.ms
    group.share.assignor.offload.enable group.share.assignors group.share.delivery.count.limit
    group.share.dlq.manager.class.name group.share.enable group.share.heartbeat.interval.ms
    group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
    group.share.max.delivery.count.limit group.share.max.groups
    group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
    group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
    group.share.max.share.sessions group.share.max.size group.share.min.assignment.interval.ms
    group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms
    group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
    group.share.min.session.timeout.ms group.share.partition.max.record.locks
    group.share.persister.class.name group.share.record.lock.duration.ms
    group.share.session.timeout.ms group.streams.acceptable.recovery.lag
    group.streams.assignment.interval.ms group.streams.assignor.offload.enable
    group.streams.assignors group.streams.heartbeat.interval.ms
    group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
    group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
    group.streams.max.size group.streams.max.standby.replicas group.streams.max.warmup.replicas
    group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
    group.streams.min.session.timeout.ms group.streams.min.task.offset.interval.ms
    group.streams.num.standby.replicas group.streams.num.warmup.replicas
    group.streams.rack.aware.assignment.tags group.streams.session.timeout.ms
    group.streams.task.offset.interval.ms group.streams.topology.description.plugin.class
    initial.broker.registration.timeout.ms
    internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
    internal.metadata.max.batch.size.in.bytes internal.metadata.max.fetch.size.in.bytes
    kafka.metrics.polling.interval.secs kafka.metrics.reporters
    leader.imbalance.per.broker.percentage
    log.dir.failure.timeout.ms
    log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms
    log.initial.task.delay.ms log.local.retention.bytes log.local.retention.ms
    log.remote.copy.lag.bytes log.remote.copy.lag.ms
    max.request.partition.size.limit metadata.log.dir
    metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
    metadata.log.segment.bytes metadata.log.segment.min.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    num.io.threads num.network.threads num.recovery.threads.per.data.dir
    num.replica.alter.log.dirs.threads num.replica.fetchers
    offsets.commit.required.acks offsets.load.buffer.size offsets.topic.compression.codec
    password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
    password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
    principal.builder.class process.roles producer.id.expiration.check.interval.ms
    producer.purgatory.purge.interval.requests queued.max.requests
    remote.fetch.max.wait.ms
    remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
    remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size
    remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
    remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
    remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
    remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
    remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
    remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
    remote.log.reader.threads remote.log.storage.manager.class.name
    remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
    remote.log.storage.system.enable replica.fetch.backoff.ms
    replica.fetch.min.bytes
    replica.high.watermark.checkpoint.interval.ms
    replica.socket.receive.buffer.bytes replica.socket.timeout.ms
    request.timeout.ms reserved.broker.max.id
    sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol
    sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class
    sasl.server.max.receive.size security.inter.broker.protocol security.providers
    server.max.startup.time.ms share.coordinator.append.linger.ms
    share.coordinator.cached.buffer.max.bytes
    share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
    share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
    share.coordinator.threads share.coordinator.write.timeout.ms
    share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms socket.listen.backlog.size socket.receive.buffer.bytes
    socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites
    ssl.client.auth ssl.endpoint.identification.algorithm ssl.engine.factory.class
    ssl.keymanager.algorithm ssl.principal.mapping.rules ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type telemetry.max.bytes
    transaction.abort.timed.out.transaction.cleanup.interval.ms
    transaction.remove.expired.transaction.cleanup.interval.ms
    transaction.state.log.load.buffer.size
    transaction.two.phase.commit.enable unclean.leader.election.interval.ms
    unstable.api.versions.enable unstable.feature.versions.enable zookeeper.clientCnxnSocket
    zookeeper.connect zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests
    zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size
    zookeeper.session.timeout.ms zookeeper.set.acl zookeeper.ssl.cipher.suites
    zookeeper.ssl.client.enable zookeeper.ssl.crl.enable zookeeper.ssl.enabled.protocols
    zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location
    zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable
    zookeeper.ssl.protocol zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password
    zookeeper.ssl.truststore.type
"""
IGNORED_BROKER_NAMES = frozenset(_IGNORED_BROKER_NAMES.split())

# Of these, what Kafka lets clients change while a broker runs; without what has to do with TLS and SASL.
_CHANGEABLE_NAMES = """
    background.threads log.local.retention.bytes
    log.local.retention.ms log.remote.copy.lag.bytes log.remote.copy.lag.ms metric.reporters
    num.io.threads num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers
    remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
    remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
    remote.log.manager.copy.max.bytes.per.second remote.log.manager.expiration.thread.pool.size
    remote.log.manager.fetch.max.bytes.per.second remote.log.manager.follower.thread.pool.size
    remote.log.reader.threads
"""
ONLY_AT_START = IGNORED_BROKER_NAMES - frozenset(_CHANGEABLE_NAMES.split())
"""The ignored settings that clients cannot set while a broker runs, as in Kafka."""

_IGNORED_TOPIC_NAMES = """
    errors.deadletterqueue.group.enable internal.segment.bytes local.retention.bytes
    local.retention.ms remote.copy.lag.bytes remote.copy.lag.ms remote.log.copy.disable
    remote.log.delete.on.disable remote.storage.enable
"""
IGNORED_TOPIC_NAMES = frozenset(_IGNORED_TOPIC_NAMES.split())

# Families without a fixed list of members: per-listener settings, and those of plugged-in classes.
IGNORED_PREFIXES = ("listener.name.", "rsm.config.", "rlmm.config.", "confluent.")

# Settings of old releases whose silent loss would surprise: what to use instead.
REPLACED = {
    "port": "listeners",
    "host.name": "listeners",
    "advertised.port": "advertised.listeners",
    "advertised.host.name": "advertised.listeners",
}

HIDDEN = "(hidden)"
_SECRET_WORDS = (
    "password",
    "secret",
    "jaas",
    "store.key",
    "store.cert",
    "master.key",
    "passphrase",
)


def is_ignored(name: str) -> bool:
    """Whether a broker setting is one of Kafka's that mean nothing here."""
    return name in IGNORED_BROKER_NAMES or name.startswith(IGNORED_PREFIXES)


def is_secret(name: str) -> bool:
    """Returns whether a setting is one of Kafka's type PASSWORD, by its name, or looks like one."""
    return any(word in name for word in _SECRET_WORDS)


def shown(name: str, value: str) -> str:
    """Returns a value as others may see it: secrets are hidden, and what nobody here knows may be one."""
    is_foreign = name not in IGNORED_BROKER_NAMES and name not in IGNORED_TOPIC_NAMES
    return HIDDEN if is_secret(name) or is_foreign else value
