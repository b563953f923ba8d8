// BullMQ on Redis: `work`; `fill N` and `probe N`, which do as ../produce.py does.

import { openSync, statSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { Queue, Worker } from "bullmq";

const FIRST_PROBE = 1_000_000_000;
const WARM_UPS = 5;
const PATIENCE_MS = 30_000;

const connection = { url: process.env.PEERS_BROKER };
const path = process.env.PEERS_STAMPS;

// A record of ../stamp.py; the clock is the one that Python calls monotonic.
function work() {
  const file = openSync(path, "a");
  const worker = BigInt(process.env.PEERS_WORKER);
  const stamp = async (job) => {
    const record = Buffer.alloc(24);
    record.writeBigInt64LE(BigInt(job.data.number), 0);
    record.writeBigInt64LE(process.hrtime.bigint(), 8);
    record.writeBigInt64LE(worker, 16);
    writeSync(file, record);
  };
  new Worker("bench", stamp, { connection });
}

async function fill(count) {
  const queue = new Queue("bench", { connection });
  const jobs = Array.from({ length: count }, (_, number) => ({ name: "noop", data: { number } }));
  await queue.addBulk(jobs);
  await queue.close();
}

async function probe(count) {
  const queue = new Queue("bench", { connection });
  const sent = {};
  for (let number = FIRST_PROBE - WARM_UPS; number < FIRST_PROBE + count; number++) {
    const { size } = statSync(path);
    const at = process.hrtime.bigint();
    await queue.add("noop", { number });
    const deadline = Date.now() + PATIENCE_MS;
    while (statSync(path).size === size) {
      if (Date.now() > deadline) throw new Error("No worker ran a single task in time.");
      await sleep(1);
    }
    if (number >= FIRST_PROBE) sent[number] = String(at);
    await sleep(20 + 100 * Math.random());
  }
  console.log(JSON.stringify(sent));
  await queue.close();
}

const [verb, count] = process.argv.slice(2);
await { work, fill, probe }[verb](Number(count));
