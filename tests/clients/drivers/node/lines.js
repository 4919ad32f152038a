// The line protocol between the matrix and a driver, for drivers in JavaScript; see lines.py.
'use strict'

const crypto = require('crypto')
const readline = require('readline')

const LONG_VALUE_BYTES = 300
const SESSION_TIMEOUT_MS = 30000 // as in lines.py
// How long a connection and an answer may take. Clients have 0.5 to 3 s for some by default, and Node sees that a
// time is over before it looks at what has come, so that a process that stood still would wait for neither.
const PATIENCE_MS = 60000

function text (data) {
  if (data === null || data === undefined) return null
  const bytes = Buffer.isBuffer(data) ? data : Buffer.from(data)
  if (bytes.length <= LONG_VALUE_BYTES) return bytes.toString('utf8')
  return `sha1:${crypto.createHash('sha1').update(bytes).digest('hex')}:${bytes.length}`
}

function say (line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

function failure (error) {
  const code = Number.isInteger(error.code) ? error.code : null
  return { code, name: String(error.code || error.name), message: String(error.message).slice(0, 300) }
}

// Answers commands one after the other; `produce` and `consume` promise a list of answer lines.
async function serve (version, operations) {
  say({ ready: version })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line)
    try {
      ((await operations[command.op](command)) || []).forEach(say)
    } catch (error) {
      console.error(error)
      say({ fatal: String(error).slice(0, 300) })
    }
    say({ done: command.op })
  }
  process.exit(0)
}

const key = one => `${one.topic}/${one.partition}`

// What a member was handed and committed, and what it owns; `poll` tells of it, as lines.py says.
class Told {
  constructor () {
    this.records = []
    this.wake = () => {}
    this.problem = null // of a member that has given up
  }

  add (topic, partition, messages) {
    for (const one of messages) {
      this.records.push({ topic, partition: Number(partition), offset: Number(one.offset), value: text(one.value) })
    }
    this.wake()
  }

  async take (ms, owned) {
    if (this.problem) throw this.problem
    if (this.records.length === 0) {
      await new Promise(resolve => {
        const timer = setTimeout(resolve, ms)
        this.wake = () => { clearTimeout(timer); resolve() }
      })
    }
    return [{ assignment: owned(), records: this.rest() }]
  }

  rest () {
    const records = this.records
    this.records = []
    return records
  }
}

module.exports = { PATIENCE_MS, SESSION_TIMEOUT_MS, Told, text, say, failure, serve, key }
