// Driver of kafkajs: Produce to v7, Fetch to v11, groups and administration.
//
// It has no consumer without a group: to read assigned partitions it joins a group of its own and seeks.
// Its snappy comes from a plug-in: here one over snappyjs. It shows no timestamp types.
'use strict'

const path = require('path')
const { PATIENCE_MS, SESSION_TIMEOUT_MS, Told, text, failure, serve, key } = require('./lines')
const { Transactions } = require('./kafkajs_transactions')

const modules = path.join(process.argv[2], 'node_modules')
const kafkajs = require(path.join(modules, 'kafkajs'))
const snappyjs = require(path.join(modules, 'snappyjs'))
const version = require(path.join(modules, 'kafkajs', 'package.json')).version
const server = process.argv[3]

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = kafkajs
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00])
const XERIAL_HEADER_BYTES = 16

// Blocks framed as xerial's library does, or one bare block.
function unsnappy (data) {
  if (!data.subarray(0, XERIAL.length).equals(XERIAL)) return Buffer.from(snappyjs.uncompress(data))
  const blocks = []
  for (let at = XERIAL_HEADER_BYTES; at < data.length;) {
    const size = data.readInt32BE(at)
    blocks.push(Buffer.from(snappyjs.uncompress(data.subarray(at + 4, at + 4 + size))))
    at += 4 + size
  }
  return Buffer.concat(blocks)
}

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async encoder => Buffer.from(snappyjs.compress(encoder.buffer)),
  decompress: async buffer => unsnappy(buffer)
})

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const options = {
  clientId: 'matrix',
  brokers: server.split(','),
  logLevel: logLevel.NOTHING,
  connectionTimeout: PATIENCE_MS,
  requestTimeout: PATIENCE_MS
}
const client = new Kafka({ ...options, retry: { retries: 3 } })
// What works for long tries again as often as the client does by itself.
const lasting = new Kafka(options)
// But for sending: its pauses between attempts double up to 30 s, and without idempotence it makes five attempts.
const PATIENT = { retries: Number.MAX_SAFE_INTEGER, maxRetryTime: 1000 }

function message (batch, record) {
  const made = { key: record.key, value: record.value, partition: batch.partition }
  if (record.timestamp !== undefined && record.timestamp !== null) made.timestamp = String(record.timestamp)
  if (record.headers) made.headers = Object.fromEntries(record.headers)
  return made
}

async function produce (command) {
  const producer = client.producer({ idempotent: Boolean(command.idempotent), allowAutoTopicCreation: false, retry: { retries: command.idempotent ? 1 : 3 } })
  await producer.connect()
  const answers = []
  for (const batch of command.batches) {
    const answer = { topic: batch.topic, partition: batch.partition }
    try {
      const messages = batch.records.map(record => message(batch, record))
      const [sent] = await producer.send({ topic: batch.topic, messages, acks: -1, compression: CODECS[command.codec] })
      const base = Number(sent.baseOffset ?? sent.offset)
      answer.offsets = batch.records.map((_, i) => base + i)
    } catch (error) {
      answer.error = failure(error.cause || error)
    }
    answers.push(answer)
  }
  await producer.disconnect()
  return answers
}

let sender

// One request at a time: with several under way the client loses the order of what it sends again. One partition at
// a time: of several partitions it sends again those that are stored already, if their leader has changed since.
async function send (command) {
  if (!sender) {
    sender = lasting.producer({ idempotent: command.idempotent, maxInFlightRequests: 1, allowAutoTopicCreation: false, retry: PATIENT })
    await sender.connect()
  }
  const { topic, partitions } = command
  const told = { next: command.from, acknowledged: [], errors: [], longest_ms: 0 }
  const began = Date.now()
  for (let passed = 0; passed < command.ms; passed = Date.now() - began) {
    const numbers = new Map()
    while (told.next - command.from < passed / command.every_ms) {
      const partition = told.next % partitions
      numbers.set(partition, [...(numbers.get(partition) || []), told.next++])
    }
    for (const [partition, some] of numbers) await sendSome(topic, partition, some, told)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
  return [told]
}

async function sendSome (topic, partition, numbers, told) {
  const began = Date.now()
  try {
    const messages = numbers.map(number => ({ value: `${topic} ${number}`, partition }))
    const [sent] = await sender.send({ topic, messages, acks: -1 })
    numbers.forEach((number, i) => told.acknowledged.push([number, partition, Number(sent.baseOffset) + i]))
  } catch (error) {
    for (const number of numbers) told.errors.push([number, String(error).slice(0, 200)])
  }
  told.longest_ms = Math.max(told.longest_ms, Date.now() - began)
}

function headersOf (record) {
  const found = []
  for (const [name, values] of Object.entries(record.headers || {})) {
    for (const value of [values].flat()) found.push([name, text(value)])
  }
  return found
}

function describe (record) {
  return {
    offset: Number(record.offset),
    key: text(record.key),
    value: text(record.value),
    timestamp: record.timestamp === undefined ? null : Number(record.timestamp),
    timestamp_type: null,
    headers: headersOf(record)
  }
}

let readers = 0

async function consume (command) {
  const readUncommitted = command.isolation === 'read_uncommitted' // by itself it reads what is committed
  const consumer = client.consumer({ groupId: `reader-${process.pid}-${readers++}`, maxWaitTimeInMs: 50, readUncommitted, retry: { retries: 3 } })
  const found = new Map(command.partitions.map(one => [key(one), []]))
  const wanted = new Map(command.partitions.map(one => [key(one), one]))
  const missing = new Set(wanted.keys())
  await consumer.connect()
  await consumer.subscribe({ topics: [...new Set(command.partitions.map(one => one.topic))], fromBeginning: true })
  let finished
  const complete = new Promise(resolve => { finished = resolve })
  const timer = setTimeout(() => finished(), command.timeout_ms)
  let problem
  consumer.on(consumer.events.CRASH, event => { problem = String(event.payload.error); finished() })
  // Members are given whole topics: what is not wanted may be packed in a way the client cannot unpack.
  consumer.on(consumer.events.GROUP_JOIN, event => {
    for (const [topic, partitions] of Object.entries(event.payload.memberAssignment)) {
      const unwanted = partitions.filter(partition => !wanted.has(key({ topic, partition })))
      if (unwanted.length > 0) consumer.pause([{ topic, partitions: unwanted }])
    }
  })
  await consumer.run({
    autoCommit: false,
    partitionsConsumedConcurrently: 4,
    eachBatch: async ({ batch, resolveOffset }) => {
      const place = key(batch)
      const one = wanted.get(place)
      for (const record of batch.messages) {
        resolveOffset(record.offset)
        if (!one || Number(record.offset) < one.from) continue
        found.get(place).push(describe(record))
      }
      if (one && found.get(place).length >= one.count) missing.delete(place)
      if (missing.size === 0) finished()
    }
  })
  for (const one of command.partitions) {
    if (one.from > 0) consumer.seek({ topic: one.topic, partition: one.partition, offset: String(one.from) })
  }
  await complete
  clearTimeout(timer)
  await consumer.disconnect()
  return command.partitions.map(one => {
    const answer = { topic: one.topic, partition: one.partition, records: found.get(key(one)) }
    if (problem) answer.problem = problem
    return answer
  })
}

// The offset of a time; the client answers the end of the log where no record is as late.
async function find (command) {
  const admin = client.admin()
  await admin.connect()
  const ends = new Map()
  const byTime = new Map()
  const answers = []
  for (const one of command.partitions) {
    if (!ends.has(one.topic)) ends.set(one.topic, await admin.fetchTopicOffsets(one.topic))
    const bounds = ends.get(one.topic).find(entry => entry.partition === one.partition)
    let offset = Number(one.timestamp === -2 ? bounds.low : bounds.high)
    if (one.timestamp !== -1 && one.timestamp !== -2) {
      const asked = `${one.topic} ${one.timestamp}`
      if (!byTime.has(asked)) byTime.set(asked, await admin.fetchTopicOffsetsByTimestamp(one.topic, one.timestamp))
      const entry = byTime.get(asked).find(entry => entry.partition === one.partition)
      offset = entry.offset === bounds.high ? null : Number(entry.offset)
    }
    answers.push({ topic: one.topic, partition: one.partition, offset })
  }
  await admin.disconnect()
  return answers
}

let group
let told
let assigned

async function join (command) {
  told = new Told()
  assigned = []
  const mine = told
  const member = lasting.consumer({
    groupId: command.group,
    sessionTimeout: SESSION_TIMEOUT_MS,
    rebalanceTimeout: SESSION_TIMEOUT_MS,
    heartbeatInterval: 200,
    maxWaitTimeInMs: 50,
    metadataMaxAge: 2000
  })
  group = { member, topic: command.topic }
  await member.connect()
  await member.subscribe({ topics: [command.topic], fromBeginning: true })
  member.on(member.events.CRASH, event => { if (!event.payload.restart) mine.problem = event.payload.error })
  member.on(member.events.REBALANCING, () => { assigned = [] })
  member.on(member.events.GROUP_JOIN, event => {
    assigned = Object.entries(event.payload.memberAssignment).flatMap(([topic, partitions]) =>
      partitions.map(partition => ({ topic, partition })))
  })
  await member.run({
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset }) => {
      const { topic, partition } = batch
      const offset = String(Number(batch.lastOffset()) + 1)
      if (command.at_least_once) mine.add(topic, partition, batch.messages)
      try {
        await member.commitOffsets([{ topic, partition, offset }])
      } catch (error) {
        // What the broker said is the cause. The client joins again after that, but takes what it wraps for the end.
        throw error.cause || error
      }
      resolveOffset(batch.lastOffset())
      if (!command.at_least_once) mine.add(topic, partition, batch.messages)
    }
  })
}

const poll = command => told.take(command.ms, () => assigned)

async function rewind (command) {
  const admin = client.admin()
  await admin.connect()
  for (const one of await admin.fetchTopicOffsetsByTimestamp(group.topic, command.timestamp)) {
    group.member.seek({ topic: group.topic, partition: one.partition, offset: one.offset })
  }
  await admin.disconnect()
}

const leave = () => group.member.disconnect().then(() => [{ records: told.rest() }])

const ADMIN = {
  create_topic: async (admin, command) => {
    const configEntries = Object.entries(command.configs).map(([name, value]) => ({ name, value }))
    const topics = [{ topic: command.topic, numPartitions: command.partitions, replicationFactor: 1, configEntries }]
    // It answers false where it was told TOPIC_ALREADY_EXISTS.
    if (!await admin.createTopics({ topics })) return { error: { code: 36, name: 'false', message: 'it was there' } }
  },
  create_partitions: (admin, command) =>
    admin.createPartitions({ topicPartitions: [{ topic: command.topic, count: command.partitions }] }).then(() => undefined),
  describe_configs: async (admin, command) => {
    const resource = { type: kafkajs.ConfigResourceTypes.TOPIC, name: command.topic, configNames: Object.keys(command.configs) }
    const { resources: [found] } = await admin.describeConfigs({ resources: [resource], includeSynonyms: false })
    return { configs: Object.fromEntries(found.configEntries.map(one => [one.configName, one.configValue])) }
  },
  alter_configs: async (admin, command) => {
    const configEntries = Object.entries(command.configs).map(([name, value]) => ({ name, value }))
    await admin.alterConfigs({ validateOnly: false, resources: [{ type: kafkajs.ConfigResourceTypes.TOPIC, name: command.topic, configEntries }] })
  },
  delete_records: async (admin, command) => {
    await admin.fetchTopicOffsets(command.topic) // it deletes in topics alone that it has heard of
    const partitions = [{ partition: command.partition, offset: String(command.offset) }]
    await admin.deleteTopicRecords({ topic: command.topic, partitions })
  },
  list_offsets: async (admin, command) => {
    const offsets = []
    for (const time of command.timestamps) {
      const special = time < 0 ? (await admin.fetchTopicOffsets(command.topic)) : await admin.fetchTopicOffsetsByTimestamp(command.topic, time)
      const one = special.find(entry => entry.partition === command.partition)
      offsets.push(Number(time === -2 ? one.low : one.offset))
    }
    return { offsets }
  },
  list_groups: async admin => ({ groups: (await admin.listGroups()).groups.map(one => one.groupId) }),
  describe_group: async (admin, command) => {
    const { groups: [found] } = await admin.describeGroups([command.group])
    return { state: found.state, members: found.members.length }
  },
  delete_group: (admin, command) => admin.deleteGroups([command.group]).then(() => undefined),
  delete_topic: (admin, command) => admin.deleteTopics({ topics: [command.topic] })
}

async function withAdmin (work) {
  const admin = client.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

const admin = command => withAdmin(async one => {
  try {
    return [(await ADMIN[command.what](one, command)) || {}]
  } catch (error) {
    return [{ error: failure(error.cause || error) }]
  }
})

const commit = command => withAdmin(one => one.setOffsets({
  groupId: command.group,
  topic: command.offsets[0].topic,
  partitions: command.offsets.map(({ partition, offset }) => ({ partition, offset: String(offset) }))
})).then(() => [])

const committed = command => withAdmin(async one => {
  const [found] = await one.fetchOffsets({ groupId: command.group, topics: [command.partitions[0].topic] })
  return command.partitions.map(({ topic, partition }) => {
    const offset = Number(found.partitions.find(entry => entry.partition === partition).offset)
    return { topic, partition, offset: offset < 0 ? null : offset }
  })
})

const transactions = new Transactions(lasting)
const transaction = command => transactions.run(command)

serve(`kafkajs ${version}`, { produce, send, consume, find, join, poll, rewind, leave, commit, committed, admin, transaction })
