// The stock module of Testcontainers for Node with the image under test: what a new group reads, as JSON.
// node modules.js IMAGE default|zookeeper VALUE...
// node modules.js IMAGE sasl:KEYSTORE:PASSPHRASE:AUTHORITY VALUE...
"use strict";

const fs = require("node:fs");
const { KafkaContainer } = require("@testcontainers/kafka");
const { Kafka, logLevel } = require("kafkajs");

const [image, words, ...values] = process.argv.slice(2);
const [mode, keystore, passphrase, authority] = words.split(":");
const SECURE_PORT = 9096;
const user = { name: "app-user", password: "userPassword" };

function container() {
  const made = new KafkaContainer(image);
  // By default the tag decides between KRaft and a ZooKeeper in the container. This one is nowhere.
  if (mode === "sasl") {
    return made.withSaslSslListener({
      port: SECURE_PORT,
      sasl: { mechanism: "SCRAM-SHA-512", user },
      keystore: { content: fs.readFileSync(keystore), passphrase },
    });
  }
  return mode === "zookeeper" ? made.withZooKeeper("zookeeper", 2181) : made;
}

async function throughTopic(server) {
  const secured = {
    sasl: { mechanism: "scram-sha-512", username: user.name, password: user.password },
    ssl: authority && { ca: [fs.readFileSync(authority)], servername: "localhost" },
  };
  const kafka = new Kafka({ brokers: [server], ...(mode === "sasl" ? secured : {}), logLevel: logLevel.ERROR, retry: { initialRetryTime: 50, retries: 30 } });
  const producer = kafka.producer();
  const consumer = kafka.consumer({ groupId: "readers" });
  try {
    await producer.connect();
    await producer.send({ topic: "orders", messages: values.map((value) => ({ value })) });
    await consumer.connect();
    await consumer.subscribe({ topic: "orders", fromBeginning: true });
    return await new Promise((resolve, reject) => {
      const found = [];
      consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
      const eachMessage = async ({ message }) => {
        if (found.push(message.value.toString()) === values.length) resolve(found);
      };
      consumer.run({ eachMessage }).catch(reject);
    });
  } finally {
    await Promise.allSettled([producer.disconnect(), consumer.disconnect()]);
  }
}

async function main() {
  const kafka = await container().start();
  try {
    const found = await throughTopic(`${kafka.getHost()}:${kafka.getMappedPort(mode === "sasl" ? SECURE_PORT : 9093)}`);
    console.log(JSON.stringify(found));
  } finally {
    await kafka.stop({ timeout: 0 });
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
