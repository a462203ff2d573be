"""asyncpg through the front-end. The environment names the system."""

import asyncio
import datetime
import decimal
import io
import os
import uuid

import asyncpg

TABLE = os.environ["TRIAL_TABLE"]
SLOW = os.environ["TRIAL_SLOW"]
IS_POSTGRES = os.environ["TRIAL_BACK"] == "postgres"
ROW = (
    7,
    2**40,
    1.5,
    "é",
    b"\0\1",
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
    decimal.Decimal("12.30"),
    True,
    uuid.UUID(int=5),
    '{"a": 1}',
)
COLUMNS = "n, big, f, s, b, d, at, x, ok, u, j"


async def connect():
    return await asyncpg.connect(ssl=False)


async def create(connection):
    await connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
    await connection.execute(
        f"CREATE TABLE {TABLE}(id int, n int, big bigint, f float8, s text, b bytea, d date,"
        " at timestamp, x numeric(8,2), ok bool, u uuid, j json)"
    )


async def typed_values_and_nulls(connection):
    places = ", ".join(f"${place}" for place in range(2, len(ROW) + 2))
    insert = f"INSERT INTO {TABLE}(id, {COLUMNS}) VALUES ($1, {places})"
    await connection.execute(insert, 1, *ROW)
    await connection.execute(insert, 2, *[None] * len(ROW))
    query = f"SELECT {COLUMNS} FROM {TABLE} WHERE id = $1"
    assert tuple(await connection.fetchrow(query, 1)) == ROW
    assert tuple(await connection.fetchrow(query, 2)) == (None,) * len(ROW)


async def prepared_statements_of_several_connections():
    async def work(number):
        connection = await connect()
        statement = await connection.prepare(f"SELECT $1::int + 1, '{number}'")
        insert = await connection.prepare(f"INSERT INTO {TABLE}(id, n) VALUES ($1, $2)")
        for turn in range(25):
            async with connection.transaction():
                await insert.fetch(1000 + number, turn)
                assert tuple(await statement.fetchrow(turn)) == (turn + 1, str(number))
        await connection.close()

    await asyncio.gather(*[work(number) for number in range(6)])
    connection = await connect()
    count = await connection.fetchval(f"SELECT count(*) FROM {TABLE} WHERE id >= 1000")
    assert count == 6 * 25, count
    await connection.close()


async def rollbacks_and_errors(connection):
    count = f"SELECT count(*) FROM {TABLE} WHERE id = 20"
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f"INSERT INTO {TABLE}(id) VALUES (20)")
    await transaction.rollback()
    assert await connection.fetchval(count) == 0
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f"INSERT INTO {TABLE}(id) VALUES (20)")
    try:
        await connection.fetchval("SELECT nosuch")
        raise AssertionError("no error")
    except asyncpg.UndefinedColumnError:
        pass
    try:
        await connection.fetchval("SELECT 1")
        raise AssertionError("a failed transaction goes on")
    except asyncpg.InFailedSQLTransactionError:
        pass
    await transaction.rollback()
    assert await connection.fetchval(count) == 0
    async with connection.transaction():
        await connection.execute(f"INSERT INTO {TABLE}(id) VALUES (20)")
        try:
            async with connection.transaction():
                await connection.execute(f"INSERT INTO {TABLE}(id) VALUES (20)")
                await connection.execute("SELECT nosuch")
        except asyncpg.UndefinedColumnError:
            pass
    assert await connection.fetchval(count) == 1


async def many_and_cursors(connection):
    rows = [(50, number) for number in range(2000)]
    await connection.executemany(f"INSERT INTO {TABLE}(id, n) VALUES ($1, $2)", rows)
    async with connection.transaction():
        query = f"SELECT n FROM {TABLE} WHERE id = $1 ORDER BY n"
        seen = [row[0] async for row in connection.cursor(query, 50, prefetch=150)]
    assert seen == list(range(2000))


async def copies(connection):
    lines = "".join(f"30,{number},\n" for number in range(3000)).encode()
    copied = await connection.copy_to_table(
        TABLE, source=io.BytesIO(lines), columns=["id", "n", "s"], format="csv"
    )
    assert copied == "COPY 3000", copied
    out = io.BytesIO()
    await connection.copy_from_query(
        f"SELECT n, s FROM {TABLE} WHERE id = 30 ORDER BY n", output=out, format="csv"
    )
    assert out.getvalue().splitlines()[:2] == [b"0,", b"1,"], out.getvalue()[:20]
    assert len(out.getvalue().splitlines()) == 3000
    if IS_POSTGRES:
        await connection.copy_records_to_table(
            TABLE, records=[(31, number) for number in range(100)], columns=["id", "n"]
        )
        assert await connection.fetchval(f"SELECT count(*) FROM {TABLE} WHERE id = 31") == 100


async def cancels_and_timeouts(connection):
    try:
        await connection.fetchval(SLOW, timeout=0.2)
        raise AssertionError("no cancel")
    except asyncio.TimeoutError:
        pass
    assert await connection.fetchval("SELECT 3") == 3
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SET LOCAL statement_timeout = 50")
    try:
        await connection.fetchval(SLOW)
        raise AssertionError("no time-out")
    except asyncpg.QueryCanceledError:
        await transaction.rollback()
    assert await connection.fetchval("SHOW statement_timeout") == "0"


async def pools():
    """A pool resets each connection that it gets back."""
    pool = await asyncpg.create_pool(min_size=2, max_size=5, ssl=False)

    async def work(number):
        async with pool.acquire() as connection:
            async with connection.transaction():
                return await connection.fetchval("SELECT $1::int", number)

    assert await asyncio.gather(*[work(number) for number in range(40)]) == list(range(40))
    await pool.close()


async def main():
    connection = await connect()
    await create(connection)
    await typed_values_and_nulls(connection)
    await prepared_statements_of_several_connections()
    await rollbacks_and_errors(connection)
    await many_and_cursors(connection)
    await copies(connection)
    await cancels_and_timeouts(connection)
    await connection.close()
    await pools()


asyncio.run(main())
