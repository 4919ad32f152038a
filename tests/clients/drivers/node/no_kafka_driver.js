// Driver of no-kafka: Produce, Fetch and ListOffsets v0, format 0: no times, no headers.
'use strict'

const path = require('path')
const { PATIENCE_MS, SESSION_TIMEOUT_MS, Told, text, failure, serve, key } = require('./lines')

const modules = path.join(process.argv[2], 'node_modules')
const Kafka = require(path.join(modules, 'no-kafka'))
const version = require(path.join(modules, 'no-kafka', 'package.json')).version
const server = process.argv[3]
const CODECS = { none: 0, gzip: 1, snappy: 2 }
const common = { connectionString: server, connectionTimeout: PATIENCE_MS, logger: { logLevel: 0 } }

async function produce (command) {
  const producer = new Kafka.Producer({
    ...common,
    codec: CODECS[command.codec],
    requiredAcks: -1,
    batch: { maxWait: 0 },
    retries: { attempts: 1 }
  })
  await producer.init()
  const results = new Map()
  // One partition per request: compressing, the client reuses the buffer that the next partition's
  // messages are already being written to, and the wrong ones are sent.
  for (const batch of command.batches) {
    const [result] = await producer.send(batch.records.map(record => ({
      topic: batch.topic,
      partition: batch.partition,
      message: { key: record.key, value: record.value }
    })))
    results.set(key(batch), result)
  }
  await producer.end()
  return command.batches.map(batch => {
    const answer = { topic: batch.topic, partition: batch.partition }
    const result = results.get(key(batch))
    if (!result || result.error) {
      answer.error = failure((result && result.error) || new Error('no answer for this partition'))
    } else {
      answer.offsets = batch.records.map((_, i) => result.offset + i)
    }
    return answer
  })
}

async function consume (command) {
  const consumer = new Kafka.SimpleConsumer({ ...common, idleTimeout: 20, maxWaitTime: 50, maxBytes: 1 << 20 })
  await consumer.init()
  const found = new Map(command.partitions.map(one => [key(one), []]))
  const missing = new Map(command.partitions.map(one => [key(one), one.count]))
  let finished
  const complete = new Promise(resolve => { finished = resolve })
  const timer = setTimeout(() => finished(), command.timeout_ms)
  for (const one of command.partitions) {
    const handler = messages => {
      const records = found.get(key(one))
      for (const item of messages) {
        // A compressed message comes back whole, from before the offset too.
        if (item.offset < one.from) continue
        records.push({
          offset: item.offset,
          key: text(item.message.key),
          value: text(item.message.value),
          timestamp: null,
          timestamp_type: null,
          headers: null
        })
      }
      if (records.length >= one.count) missing.delete(key(one))
      if (missing.size === 0) finished()
    }
    await consumer.subscribe(one.topic, one.partition, { offset: one.from }, handler)
  }
  await complete
  clearTimeout(timer)
  await consumer.end()
  return command.partitions.map(one => ({
    topic: one.topic, partition: one.partition, records: found.get(key(one))
  }))
}

async function find (command) {
  const consumer = new Kafka.SimpleConsumer({ ...common })
  await consumer.init()
  const answers = []
  for (const one of command.partitions) {
    const offset = await consumer.offset(one.topic, one.partition, one.timestamp)
    answers.push({ topic: one.topic, partition: one.partition, offset: offset === undefined ? null : offset })
  }
  await consumer.end()
  return answers
}

let group
let told
let handling // of the member: what its handler is still at

async function join (command) {
  told = new Told()
  handling = new Set()
  const mine = told
  const under = handling
  const member = new Kafka.GroupConsumer({
    ...common,
    groupId: command.group,
    sessionTimeout: SESSION_TIMEOUT_MS,
    heartbeatTimeout: 200,
    idleTimeout: 20,
    maxWaitTime: 50,
    startingOffset: Kafka.EARLIEST_OFFSET
  })
  group = member
  const handle = async (messages, topic, partition) => {
    const last = messages[messages.length - 1]
    // It commits the offset after the one it is given. A refusal is no error to it, but one of the results.
    const results = await member.commitOffset({ topic, partition, offset: last.offset, metadata: '' })
    for (const one of results) if (one.error) throw one.error
    mine.add(topic, partition, messages.map(one => ({ offset: one.offset, value: one.message.value })))
  }
  const handler = (...batch) => {
    const done = handle(...batch)
    under.add(done)
    const over = () => under.delete(done)
    done.then(over, over)
    return done
  }
  // Joining waits for the other members, who may be asked to poll meanwhile.
  member.init([{ subscriptions: [command.topic], handler }]).catch(error => console.error(error))
}

const owned = () => Object.values(group.subscriptions).map(one => ({ topic: one.topic, partition: one.partition }))

const poll = command => told.take(command.ms, owned)

// What was committed before it left was handed out, though it may hear of that last of all.
async function leave () {
  await group.end()
  await Promise.race([Promise.allSettled(handling), new Promise(resolve => setTimeout(resolve, PATIENCE_MS))])
  return [{ records: told.rest() }]
}

async function outsider (group) {
  const consumer = new Kafka.SimpleConsumer({ ...common, groupId: group })
  await consumer.init()
  return consumer
}

async function commit (command) {
  const consumer = await outsider(command.group)
  const results = await consumer.commitOffset(command.offsets)
  await consumer.end()
  for (const one of results) if (one.error) throw one.error
}

async function committed (command) {
  const consumer = await outsider(command.group)
  const found = await consumer.fetchOffset(command.partitions)
  await consumer.end()
  return found.map(({ topic, partition, offset }) => ({ topic, partition, offset: offset < 0 ? null : offset }))
}

serve(`no-kafka ${version}`, { produce, consume, find, join, poll, leave, commit, committed })
