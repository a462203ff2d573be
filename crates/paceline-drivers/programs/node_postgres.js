// node-postgres through the front-end. The environment names the system.
'use strict';

const assert = require('assert');
const { Client, Pool } = require('pg');

const table = process.env.TRIAL_TABLE;
const slow = process.env.TRIAL_SLOW;

async function connected() {
  const client = new Client();
  await client.connect();
  return client;
}

async function create(client) {
  await client.query(`DROP TABLE IF EXISTS ${table}`);
  await client.query(
    `CREATE TABLE ${table}(id int, n int, big bigint, f float8, s text, b bytea, d date,
     at timestamp, x numeric(8,2), ok bool, u uuid, j json)`
  );
}

async function typedValuesAndNulls(client) {
  const columns = 'n, big, f, s, b, x, ok, u, j';
  const values = [7, '1099511627776', 1.5, 'é', Buffer.from([0, 1]), '12.30', true,
    '00000000-0000-0000-0000-000000000005', { a: 1 }];
  const places = values.map((_, index) => `$${index + 2}`).join(', ');
  const insert = `INSERT INTO ${table}(id, ${columns}) VALUES ($1, ${places})`;
  await client.query(insert, [1, ...values]);
  await client.query(insert, [2, ...values.map(() => null)]);
  const select = `SELECT ${columns} FROM ${table} WHERE id = $1`;
  const read = async (id) => {
    const result = await client.query({ text: select, values: [id], rowMode: 'array' });
    return result.rows[0];
  };
  assert.deepStrictEqual(await read(1), values);
  assert.deepStrictEqual(await read(2), values.map(() => null));
  const when = new Date(2024, 1, 29, 1, 2, 3, 4);
  await client.query(`UPDATE ${table} SET at = $1 WHERE id = 1`, [when]);
  const { rows } = await client.query(`SELECT at FROM ${table} WHERE id = 1`);
  assert.deepStrictEqual(rows[0].at, when);
}

// Each connection has its own number; a statement of another one would show another number.
async function preparedStatementsOfSeveralConnections(client) {
  const work = async (number) => {
    const own = await connected();
    for (let turn = 0; turn < 25; turn += 1) {
      await own.query('BEGIN');
      const insert = `INSERT INTO ${table}(id, n) VALUES ($1, $2)`;
      await own.query({ name: 'insert', text: insert, values: [1000 + number, turn] });
      const select = { name: 'select', text: `SELECT $1::int + 1 AS a, '${number}' AS b`, values: [turn] };
      const { rows } = await own.query(select);
      assert.deepStrictEqual(rows, [{ a: turn + 1, b: String(number) }]);
      await own.query('COMMIT');
    }
    await own.end();
  };
  await Promise.all([0, 1, 2, 3, 4, 5].map(work));
  const { rows } = await client.query(`SELECT count(*) AS n FROM ${table} WHERE id >= 1000`);
  assert.strictEqual(rows[0].n, '150');
}

async function rollbacksAndErrors(client) {
  const count = async () => {
    const { rows } = await client.query(`SELECT count(*) AS n FROM ${table} WHERE id = 20`);
    return rows[0].n;
  };
  const insert = `INSERT INTO ${table}(id) VALUES ($1)`;
  await client.query('BEGIN');
  await client.query(insert, [20]);
  await client.query('ROLLBACK');
  assert.strictEqual(await count(), '0');
  await client.query('BEGIN');
  await client.query(insert, [20]);
  await assert.rejects(client.query('SELECT nosuch'), { code: '42703' });
  await assert.rejects(client.query('SELECT 1'), { code: '25P02' });
  const { command } = await client.query('COMMIT');
  assert.strictEqual(command, 'ROLLBACK');
  assert.strictEqual(await count(), '0');
  // A statement whose Parse has failed has no name: the same name is free for another one.
  await assert.rejects(client.query({ name: 'failed', text: 'SELECT nosuch', values: [] }), { code: '42703' });
  const { rows } = await client.query({ name: 'failed', text: 'SELECT 5 AS n', values: [] });
  assert.deepStrictEqual(rows, [{ n: 5 }]);
}

// Several statements in one text, and many requests without a wait between them.
async function queues(client) {
  const results = await client.query('SELECT 1 AS n; SELECT 2 AS n');
  assert.deepStrictEqual(results.map((result) => result.rows), [[{ n: 1 }], [{ n: 2 }]]);
  const numbers = Array.from({ length: 100 }, (_, number) => number);
  const answers = await Promise.all(numbers.map((n) => client.query('SELECT $1::int AS n', [n])));
  assert.deepStrictEqual(answers.map((answer) => answer.rows[0].n), numbers);
}

async function cancels(client) {
  const query = client.query(slow);
  const ended = assert.rejects(query, { code: '57014' });
  let isOver = false;
  ended.finally(() => { isOver = true; });
  while (!isOver) {
    const other = new Client();
    await new Promise((resolve) => {
      other.connection.once('end', resolve);
      other.connection.once('error', resolve);
      other.connection.on('connect', () => other.connection.cancel(client.processID, client.secretKey));
      other.connection.connect(Number(process.env.PGPORT), process.env.PGHOST);
    });
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  await ended;
  await client.query('BEGIN');
  await client.query('SET LOCAL statement_timeout = 50');
  await assert.rejects(client.query(slow), { code: '57014' });
  await client.query('ROLLBACK');
  const { rows } = await client.query('SHOW statement_timeout');
  assert.strictEqual(rows[0].statement_timeout, '0');
}

async function pools() {
  const pool = new Pool({ max: 5 });
  const numbers = Array.from({ length: 60 }, (_, number) => number);
  const answers = await Promise.all(numbers.map((n) => pool.query('SELECT $1::int AS n', [n])));
  assert.deepStrictEqual(answers.map((answer) => answer.rows[0].n), numbers);
  await pool.end();
}

// These packages are Debian's only in part.
async function copies(client) {
  let streams;
  try {
    streams = require('pg-copy-streams');
  } catch (missing) {
    console.error('SKIPPED: pg-copy-streams is not installed (cargo xtask setup)');
    return;
  }
  const { pipeline } = require('stream/promises');
  const { Readable } = require('stream');
  const lines = Array.from({ length: 5000 }, (_, number) => `30\t${number}\n`);
  await pipeline(Readable.from(lines), client.query(streams.from(`COPY ${table}(id, n) FROM STDIN`)));
  let text = '';
  const out = client.query(streams.to(`COPY (SELECT n FROM ${table} WHERE id = 30 ORDER BY n) TO STDOUT`));
  for await (const piece of out) {
    text += piece;
  }
  assert.deepStrictEqual(text, lines.map((line) => line.slice(3)).join(''));
}

async function cursors(client) {
  let Cursor;
  try {
    Cursor = require('pg-cursor');
  } catch (missing) {
    console.error('SKIPPED: pg-cursor is not installed (cargo xtask setup)');
    return;
  }
  await client.query('BEGIN');
  const cursor = client.query(new Cursor(`SELECT n FROM ${table} WHERE id >= 1000 ORDER BY id, n`));
  const seen = [];
  for (;;) {
    const rows = await cursor.read(20);
    if (rows.length === 0) {
      break;
    }
    seen.push(...rows);
  }
  await cursor.close();
  await client.query('COMMIT');
  assert.strictEqual(seen.length, 150);
}

async function main() {
  const client = await connected();
  await create(client);
  await typedValuesAndNulls(client);
  await preparedStatementsOfSeveralConnections(client);
  await rollbacksAndErrors(client);
  await queues(client);
  await copies(client);
  await cursors(client);
  await cancels(client);
  await client.end();
  await pools();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
