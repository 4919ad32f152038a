// The interface of the native `snappy` module (version 6, callbacks) over the pure snappyjs, so that
// the JavaScript clients have the codec without a compiler.
'use strict'

const snappyjs = require('snappyjs')

function finish (callback, work) {
  let result
  try {
    result = Buffer.from(work())
  } catch (error) {
    process.nextTick(callback, error)
    return
  }
  process.nextTick(callback, null, result)
}

exports.compressSync = input => Buffer.from(snappyjs.compress(Buffer.from(input)))
exports.uncompressSync = input => Buffer.from(snappyjs.uncompress(Buffer.from(input)))
exports.compress = (input, callback) => finish(callback, () => snappyjs.compress(Buffer.from(input)))
exports.uncompress = function (input, options, callback) {
  finish(callback || options, () => snappyjs.uncompress(Buffer.from(input)))
}
exports.isValidCompressedSync = () => true
