// kafkajs, driven by the compatibility tests: one JSON command per line in, one JSON answer per line out.
// The commands are described in tests/foreign/programs.py. kafkajs has no consumer without a group,
// so this program produces and asks for offsets only.
"use strict";
process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
const readline = require("readline");
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const ACKS = { all: -1, 1: 1, 0: 0 };
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };
const kafka = new Kafka({
  clientId: "kafkajs",
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { retries: 3, initialRetryTime: 100 },
});
const producers = new Map();
let admin = null;

const unpacked = (text) => (text === null ? null : Buffer.from(text, "base64"));

async function producerFor(idempotent) {
  if (!producers.has(idempotent)) {
    const producer = kafka.producer({ idempotent, allowAutoTopicCreation: true });
    await producer.connect();
    producers.set(idempotent, producer);
  }
  return producers.get(idempotent);
}

async function adminClient() {
  if (admin === null) {
    admin = kafka.admin();
    await admin.connect();
  }
  return admin;
}

// kafkajs takes headers as an object whose values may be arrays: repeated keys keep their order.
function headersOf(pairs) {
  const headers = {};
  for (const { key, value } of pairs) (headers[key] ||= []).push(unpacked(value));
  return headers;
}

async function produce(command) {
  const messages = command.records.map((record) => ({
    partition: command.partition === null ? undefined : command.partition,
    key: unpacked(record.key),
    value: unpacked(record.value),
    headers: headersOf(record.headers),
    timestamp: record.timestamp_ms === null ? undefined : String(record.timestamp_ms),
  }));
  const producer = await producerFor(command.idempotent);
  const sent = await producer.send({
    topic: command.topic,
    acks: ACKS[command.acks],
    compression: CODECS[command.compression],
    messages,
  });
  const first = (sent || []).map((part) => [part.partition, Number(part.baseOffset ?? -1)]);
  return { base_offsets: first };
}

async function offsets(command) {
  const client = await adminClient();
  const found = await client.fetchTopicOffsets(command.topic);
  const entry = found.find((part) => part.partition === command.partition);
  let forTime = null;
  if (command.timestamp_ms !== null) {
    const at = await client.fetchTopicOffsetsByTimestamp(command.topic, command.timestamp_ms);
    forTime = Number(at.find((part) => part.partition === command.partition).offset);
  }
  return { beginning: Number(entry.low), end: Number(entry.high), for_time: forTime };
}

async function topics() {
  const client = await adminClient();
  return { topics: await client.listTopics() };
}

const OPERATIONS = { produce, offsets, topics };

async function answer(line) {
  const command = JSON.parse(line);
  try {
    return await OPERATIONS[command.op](command);
  } catch (error) {
    const cause = error.code === undefined && error.cause ? error.cause : error;
    return { error: { code: cause.code ?? -1, message: String(cause.message) } };
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + "\n");
  }
  for (const producer of producers.values()) await producer.disconnect();
  if (admin !== null) await admin.disconnect();
}

main();
