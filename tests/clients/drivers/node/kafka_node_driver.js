// Driver of kafka-node: Produce and Fetch v0-v2, formats 0 and 1.
//
// What the client shows: no headers, no timestamp types. It reads the inner messages' timestamps of
// a compressed message even where the wrapper carries an append time. Its simple consumer asks with
// Fetch v0; its group consumer with v2, told apart by a generation: given one, the simple consumer
// takes the v2 path with assigned partitions.
'use strict'

const path = require('path')
const { PATIENCE_MS, SESSION_TIMEOUT_MS, Told, text, failure, serve, key } = require('./lines')

const modules = path.join(process.argv[2], 'node_modules')
const kafka = require(path.join(modules, 'kafka-node'))
const version = require(path.join(modules, 'kafka-node', 'package.json')).version
const server = process.argv[3]
const CODECS = { none: 0, gzip: 1, snappy: 2 }
// A broker that does not say in time which versions it serves is taken for one of before 0.10.
const PATIENT = { connectTimeout: PATIENCE_MS, requestTimeout: PATIENCE_MS, versions: { requestTimeout: PATIENCE_MS } }

function connect (Kind, ...options) {
  return new Promise((resolve, reject) => {
    const client = new kafka.KafkaClient({ kafkaHost: server, autoConnect: true, ...PATIENT })
    client.on('error', reject)
    client.once('ready', () => resolve(Kind ? new Kind(client, ...options) : client))
  })
}

const close = one => new Promise(resolve => one.close(() => resolve()))

function message (record) {
  const made = new kafka.KeyedMessage(record.key, record.value)
  if (record.timestamp !== undefined && record.timestamp !== null) made.timestamp = record.timestamp
  return made
}

async function produce (command) {
  const producer = await connect(kafka.Producer, { requireAcks: -1, ackTimeoutMs: 45000 })
  const payloads = command.batches.map(batch => ({
    topic: batch.topic,
    partition: batch.partition,
    attributes: CODECS[command.codec],
    messages: batch.records.map(message)
  }))
  const sent = await new Promise(resolve =>
    producer.send(payloads, (error, result) => resolve({ error, result })))
  const answers = command.batches.map(batch => {
    const answer = { topic: batch.topic, partition: batch.partition }
    const base = sent.error ? undefined : (sent.result[batch.topic] || {})[batch.partition]
    if (base === undefined) {
      answer.error = failure(sent.error || new Error('no answer for this partition'))
    } else {
      answer.offsets = batch.records.map((_, i) => base + i)
    }
    return answer
  })
  await close(producer)
  return answers
}

function describe (record) {
  return {
    offset: record.offset,
    key: text(record.key),
    value: text(record.value),
    timestamp: record.timestamp ? record.timestamp.getTime() : null,
    timestamp_type: null,
    headers: null
  }
}

async function consume (command) {
  const client = await connect(null)
  const found = new Map(command.partitions.map(one => [key(one), []]))
  const problems = new Map()
  const missing = new Map(command.partitions.map(one => [key(one), one.count]))
  const payloads = command.partitions.map(one => ({ topic: one.topic, partition: one.partition, offset: one.from }))
  const consumer = new kafka.Consumer(client, payloads, {
    fromOffset: true, autoCommit: false, encoding: 'buffer', keyEncoding: 'buffer', fetchMaxWaitMs: 50
  })
  consumer.generationId = 0
  consumer.payloadMap = {}
  for (const one of command.partitions) {
    consumer.payloadMap[one.topic] = { ...consumer.payloadMap[one.topic], [one.partition]: one.from }
  }
  await new Promise(resolve => {
    const timer = setTimeout(resolve, command.timeout_ms)
    consumer.on('error', error => problems.set(key(error), String(error.message || error)))
    consumer.on('message', record => {
      const place = key(record)
      found.get(place).push(describe(record))
      if (found.get(place).length >= missing.get(place)) missing.delete(place)
      if (missing.size === 0) {
        clearTimeout(timer)
        resolve()
      }
    })
  })
  await close(consumer)
  return command.partitions.map(one => {
    const answer = { topic: one.topic, partition: one.partition, records: found.get(key(one)) }
    if (problems.has(key(one))) answer.problem = problems.get(key(one))
    return answer
  })
}

async function find (command) {
  const client = await connect(null)
  const asked = command.partitions.map(one => ({
    topic: one.topic, partition: one.partition, time: one.timestamp, maxNum: 1
  }))
  const found = await new Promise((resolve, reject) =>
    new kafka.Offset(client).fetch(asked, (error, data) => error ? reject(error) : resolve(data)))
  await close(client)
  return command.partitions.map(one => {
    const offset = found[one.topic][one.partition][0]
    return { topic: one.topic, partition: one.partition, offset: offset === undefined ? null : offset }
  })
}

const promised = work => new Promise((resolve, reject) =>
  work((error, result) => error ? reject(error) : resolve(result)))

let group
let told

// A member commits each message by itself: what it is handed comes in events, not in batches.
async function join (command) {
  told = new Told()
  const mine = told
  const member = new kafka.ConsumerGroup({
    kafkaHost: server,
    groupId: command.group,
    sessionTimeout: SESSION_TIMEOUT_MS,
    heartbeatInterval: 1000, // an answer that takes longer makes it join again
    protocol: [command.assignor || 'roundrobin'],
    fromOffset: 'earliest',
    autoCommit: false,
    encoding: 'buffer',
    fetchMaxWaitMs: 50,
    retries: 30,
    retryMinTimeout: 200,
    ...PATIENT
  }, command.topic)
  group = member
  member.on('error', error => console.error(error))
  member.on('message', message => {
    const { topic, partition, offset } = message
    const commits = [{ topic, partition, offset: offset + 1, metadata: 'm' }]
    const generation = member.generationId
    member.sendOffsetCommitRequest(commits, (error, answer) => {
      // A refusal is no error to it: one of a member that must join again is in the answer alone.
      if (!error && generation && answer?.[topic]?.errorCode === 0) mine.add(topic, partition, [message])
    })
  })
}

const owned = () => group.ready && !group.rebalancing
  ? group.topicPayloads.map(one => ({ topic: one.topic, partition: one.partition }))
  : []

const poll = command => told.take(command.ms, owned)

const leave = () => promised(done => group.close(false, done)).then(() => [{ records: told.rest() }])

async function commit (command) {
  const client = await connect(null)
  await promised(done => client.sendGroupCoordinatorRequest(command.group, done))
  const payloads = command.offsets.map(one => ({ ...one }))
  await promised(done => new kafka.Offset(client).commit(command.group, payloads, done))
  await close(client)
}

async function committed (command) {
  const client = await connect(null)
  const asked = command.partitions.map(one => ({ ...one }))
  const found = await promised(done => new kafka.Offset(client).fetchCommits(command.group, asked, done))
  await close(client)
  return command.partitions.map(one => {
    const offset = Number(found[one.topic][one.partition])
    return { ...one, offset: offset < 0 ? null : offset }
  })
}

const ADMIN = {
  create_topic: async (admin, command) => {
    const configEntries = Object.entries(command.configs).map(([name, value]) => ({ name, value }))
    const [refused] = await promised(done => admin.createTopics([{
      topic: command.topic, partitions: command.partitions, replicationFactor: 1, configEntries
    }], done))
    // It tells errors of topics in words alone.
    if (refused) return { error: { code: /exists/.test(refused.error) ? 36 : null, name: 'error', message: refused.error } }
  },
  describe_configs: async (admin, command) => {
    const resource = { resourceType: admin.RESOURCE_TYPES.topic, resourceName: command.topic, configNames: [] }
    const [found] = await promised(done => admin.describeConfigs({ resources: [resource], includeSynonyms: false }, done))
    const values = new Map(found.configEntries.map(one => [one.configName, one.configValue]))
    return { configs: Object.fromEntries(Object.keys(command.configs).map(name => [name, values.get(name)])) }
  },
  list_groups: async admin => ({ groups: Object.keys(await promised(done => admin.listGroups(done))) }),
  describe_group: async (admin, command) => {
    const found = (await promised(done => admin.describeGroups([command.group], done)))[command.group]
    return { state: found.state, members: found.members.length }
  }
}

async function admin (command) {
  const client = await connect(null)
  try {
    return [(await ADMIN[command.what](new kafka.Admin(client), command)) || {}]
  } catch (error) {
    return [{ error: failure(error) }]
  } finally {
    await close(client)
  }
}

serve(`kafka-node ${version}`, { produce, consume, find, join, poll, leave, commit, committed, admin })
