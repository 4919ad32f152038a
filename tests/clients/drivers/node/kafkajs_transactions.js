// Transactions of kafkajs: producers by name, and copies of records with their offsets.
'use strict'

const { text } = require('./lines')

const TIMEOUT_MS = 60000

// An error as the protocol writes it, by Kafka's own name of it where there is one.
function failureOf (error) {
  const told = error.cause || error
  const code = Number.isInteger(told.code) ? told.code : null
  return { code, name: String(told.type || told.name), message: String(told.message).slice(0, 300) }
}

class Transactions {
  constructor (client) {
    this.client = client
    this.producers = new Map()
    this.begun = new Map()
  }

  async run (command) {
    try {
      return [(await this[command.what](command)) || {}]
    } catch (error) {
      return [{ error: failureOf(error), abort: await this.abort(command.as) }]
    }
  }

  // What applications do after an error; what was thrown, if anything.
  async abort (name) {
    const transaction = this.begun.get(name)
    this.begun.delete(name)
    try {
      if (transaction && transaction.isActive()) await transaction.abort()
      return null
    } catch (error) {
      return failureOf(error)
    }
  }

  async open (command) {
    const producer = this.client.producer({
      transactionalId: command.id,
      idempotent: true,
      maxInFlightRequests: 1,
      transactionTimeout: TIMEOUT_MS,
      allowAutoTopicCreation: false
    })
    await producer.connect()
    this.producers.set(command.as, producer)
  }

  async close (command) {
    await this.producers.get(command.as).disconnect()
    this.producers.delete(command.as)
  }

  async begin (name) {
    if (!this.begun.has(name)) this.begun.set(name, await this.producers.get(name).transaction())
    return this.begun.get(name)
  }

  async end (name, how) {
    const transaction = this.begun.get(name)
    if (how === 'commit') await transaction.commit()
    if (how === 'abort') await transaction.abort()
    if (how) this.begun.delete(name)
  }

  async write (command) {
    const transaction = await this.begin(command.as)
    for (const { topic, partition, records } of command.batches) {
      await transaction.send({ topic, messages: records.map(record => ({ value: record.value, partition })) })
    }
    await this.end(command.as, command.end)
  }

  async copy (command) {
    const consumer = this.client.consumer({ groupId: command.group, maxWaitTimeInMs: 50, readUncommitted: false })
    try {
      const records = await take(consumer, command.topic, command.count)
      const transaction = await this.begin(command.as)
      const nexts = new Map()
      for (const { partition, offset, value } of records) {
        await transaction.send({ topic: command.to, messages: [{ value: `${value} copied`, partition }] })
        nexts.set(partition, String(offset + 1))
      }
      const partitions = [...nexts].map(([partition, offset]) => ({ partition, offset }))
      await transaction.sendOffsets({ consumerGroupId: command.group, topics: [{ topic: command.topic, partitions }] })
      await this.end(command.as, command.end)
      return { read: records.map(({ partition, offset }) => [partition, offset]) }
    } finally {
      await consumer.disconnect()
    }
  }
}

// So many records, in the order they came.
async function take (consumer, topic, count) {
  const records = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${records.length} of ${count} records`)), TIMEOUT_MS)
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (records.length < count) records.push({ partition, offset: Number(message.offset), value: text(message.value) })
        if (records.length === count) { clearTimeout(timer); resolve() }
      }
    }).catch(reject)
  })
  return records
}

module.exports = { Transactions }
