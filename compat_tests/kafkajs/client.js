// KafkaJS behind the line protocol of compat_tests/remote.py: what a group needs (produce, join, records, leave).
"use strict";

const readline = require("node:readline");
const { Kafka, CompressionTypes, Partitioners, logLevel } = require("kafkajs");

const secured = require("./secured.js");

const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };
const members = [];

const fromWire = (text) => (text === null ? null : Buffer.from(text, "base64"));
const toWire = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));

const kafka = (bootstrap) =>
  new Kafka({
    clientId: "kafkajs",
    brokers: [bootstrap],
    logLevel: logLevel.ERROR,
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 30 },
  });

async function produce(request) {
  const producer = kafka(request.bootstrap).producer({
    idempotent: request.idempotent,
    createPartitioner: Partitioners.DefaultPartitioner,
  });
  await producer.connect();
  try {
    const answers = await producer.send({
      topic: request.topic,
      acks: -1,
      compression: codecs[request.compression],
      messages: request.records.map(([key, value, headers, timestamp, partition]) => ({
        key: fromWire(key),
        value: fromWire(value),
        headers: Object.fromEntries(headers.map(([name, data]) => [name, fromWire(data)])),
        timestamp: String(timestamp),
        partition,
      })),
    });
    const next = new Map(answers.map((answer) => [answer.partition, Number(answer.baseOffset)]));
    return request.records.map(([, , , , partition]) => {
      const offset = next.get(partition);
      next.set(partition, offset + 1);
      return [partition, offset];
    });
  } finally {
    await producer.disconnect();
  }
}

// A member commits what it has read after every batch, and before it gives a partition back.
async function join(request) {
  const member = { assigned: [], rows: [], failure: null };
  const consumer = kafka(request.bootstrap).consumer({
    groupId: request.group,
    sessionTimeout: request.session_timeout_ms,
    rebalanceTimeout: 10000,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 100,
  });
  member.consumer = consumer;
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.assigned = payload.memberAssignment[request.topic] || [];
  });
  consumer.on(consumer.events.REBALANCING, () => {
    member.assigned = [];
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) member.failure = payload.error;
  });
  await consumer.connect();
  await consumer.subscribe({ topic: request.topic, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      const headers = Object.entries(message.headers || {}).map(([name, data]) => [name, toWire(data)]);
      member.rows.push([
        toWire(message.key),
        toWire(message.value),
        headers,
        Number(message.timestamp),
        partition,
        Number(message.offset),
      ]);
    },
  });
  members.push(member);
  return members.length - 1;
}

async function handle(request) {
  if (request.op === "produce") return produce(request);
  if (request.op === "secured") return secured(request);
  if (request.op === "join") return join(request);
  const member = members[request.member];
  if (member.failure) throw member.failure;
  switch (request.op) {
    case "partitions":
      return [...member.assigned].sort((a, b) => a - b);
    case "records":
      return member.rows.slice(request.from);
    case "leave":
      await member.consumer.disconnect();
      return null;
    default:
      throw new Error(`unknown op ${request.op}`);
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    const answer = { id: request.id };
    try {
      answer.result = await handle(request);
    } catch (error) {
      console.error(error);
      answer.error = error.type || error.message;
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  process.exit(0);
}

main();
