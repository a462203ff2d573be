"""What psycopg 3 does with types, cursors, pipelines and COPY. Called with the server's port."""

import datetime
import decimal
import sys
import uuid

import psycopg
from psycopg.types.json import Jsonb

ROW = (
    7,
    1.5,
    "é",
    b"\0\1",
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
    decimal.Decimal("12.30"),
    True,
    uuid.UUID(int=5),
    {"a": 1},
)

connection = psycopg.connect(f"host=127.0.0.1 port={sys.argv[1]} user=ada dbname=bank")
connection.execute(
    "CREATE TABLE t(id serial PRIMARY KEY, n int, f float8, s text, b bytea, d date, at timestamp,"
    " x numeric(8,2), ok bool, u uuid, j jsonb)"
)
insert = "INSERT INTO t(n, f, s, b, d, at, x, ok, u, j) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
connection.execute(insert, (*ROW[:-1], Jsonb(ROW[-1])))
for binary in (False, True):
    cursor = connection.cursor(binary=binary)
    row = cursor.execute("SELECT * FROM t WHERE n = %s AND s = %s", (7, "é")).fetchone()
    assert row[1:] == ROW, (binary, row)
connection.commit()

with connection.cursor() as cursor, cursor.copy("COPY t(n, s) FROM STDIN") as copy:
    for number in range(100):
        copy.write_row((number, f"line {number}\t\\"))
connection.commit()
assert connection.execute("SELECT count(*) FROM t").fetchone() == (101,)
assert connection.execute("SELECT s FROM t WHERE n = 99").fetchone() == ("line 99\t\\",)

with connection.cursor("on_the_server") as cursor:
    cursor.itersize = 7
    cursor.execute("SELECT n FROM t WHERE s LIKE 'line%' ORDER BY n")
    assert [row[0] for row in cursor] == list(range(100))
connection.commit()

with connection.pipeline():
    first = connection.execute("SELECT 1")
    second = connection.execute("INSERT INTO t(n) VALUES (%s) RETURNING n", (500,))
assert first.fetchone() == (1,) and second.fetchone() == (500,)
connection.commit()

try:
    with connection.transaction():
        connection.execute("INSERT INTO t(n) VALUES (600)")
        with connection.transaction():
            connection.execute("SELECT nosuch")
except psycopg.errors.UndefinedColumn:
    pass
assert connection.execute("SELECT count(*) FROM t WHERE n = 600").fetchone() == (0,)
assert len(connection.execute("SELECT n FROM t WHERE n = ANY(%s)", ([1, 2],)).fetchall()) == 2
connection.close()
