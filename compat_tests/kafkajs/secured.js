// The op "secured": KafkaJS as a user of a secured node. It writes, then reads back what it wrote.
"use strict";

const fs = require("node:fs");
const net = require("node:net");
const tls = require("node:tls");
const { Kafka, Partitioners, logLevel } = require("kafkajs");

// `opened.count` counts the connections that the client opens.
const client = (request, opened) => {
  const { security_protocol, authority, mechanism, user, password } = request.secured;
  return new Kafka({
    clientId: "kafkajs",
    brokers: [request.bootstrap],
    logLevel: logLevel.ERROR,
    // It renews a session when less than this is left of it; the default is longer than the session.
    reauthenticationThreshold: 1000,
    ssl: security_protocol === "SASL_SSL" ? { ca: [fs.readFileSync(authority)] } : undefined,
    sasl: { mechanism: mechanism.toLowerCase(), username: user, password },
    socketFactory: ({ host, port, ssl, onConnect }) => {
      opened.count += 1;
      if (!ssl) return net.connect({ host, port }, onConnect);
      return tls.connect({ host, port, servername: host, ...ssl }, onConnect);
    },
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 5 },
  });
};

async function fill(request, answer) {
  const opened = { count: 0 };
  const kafka = client(request, opened);
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  let count = 0;
  try {
    const end = Date.now() + request.secured.duration_ms;
    for (; count < 3 || Date.now() < end; count += 1) {
      await producer.send({ topic: request.topic, messages: [{ value: String(count) }] });
      if (count === 0) answer.connections[0] = opened.count;
      answer.connections[1] = opened.count;
    }
  } finally {
    await producer.disconnect();
  }
  const consumer = kafka.consumer({ groupId: request.topic, maxWaitTimeInMs: 100 });
  await consumer.connect();
  try {
    await consumer.subscribe({ topic: request.topic, fromBeginning: true });
    await new Promise((done, failed) => {
      // The first group waits for the node to load its groups: the client starts again by itself.
      consumer.on(consumer.events.CRASH, ({ payload }) => {
        if (!payload.restart) failed(payload.error);
      });
      const eachMessage = async ({ message }) => {
        answer.values.push(String(message.value));
        if (answer.values.length === count) done();
      };
      consumer.run({ eachMessage }).catch(failed);
    });
  } finally {
    await consumer.disconnect();
  }
}

// The answer has what the client read back, or the error that it gave. `connections` has how many it had opened when its
// first record was written, and when its last one was.
module.exports = async function secured(request) {
  const answer = { values: [], connections: [0, 0], error: "" };
  try {
    await fill(request, answer);
  } catch (error) {
    // What ends its retries wraps the error that the node gave.
    const cause = error.cause || error;
    answer.error = cause.type || cause.name;
  }
  return answer;
};
