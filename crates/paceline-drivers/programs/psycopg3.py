"""psycopg 3 through the front-end. The environment names the system."""

import datetime
import decimal
import os
import threading
import uuid

import psycopg
from psycopg.types.json import Jsonb

TABLE = os.environ["TRIAL_TABLE"]
SLOW = os.environ["TRIAL_SLOW"]
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
    {"a": 1},
)
COLUMNS = "n, big, f, s, b, d, at, x, ok, u, j"


def connect(**options):
    return psycopg.connect("", **options)


def create():
    with connect(autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        connection.execute(
            f"CREATE TABLE {TABLE}(id int, n int, big bigint, f float8, s text, b bytea, d date,"
            " at timestamp, x numeric(8,2), ok bool, u uuid, j jsonb)"
        )


def typed_values_and_nulls():
    with connect() as connection:
        insert = f"INSERT INTO {TABLE}(id, {COLUMNS}) VALUES (%s" + ", %s" * len(ROW) + ")"
        connection.execute(insert, (1, *ROW[:-1], Jsonb(ROW[-1])))
        connection.execute(insert, (2, *[None] * len(ROW)))
        for binary in (False, True):
            cursor = connection.cursor(binary=binary)
            query = f"SELECT {COLUMNS} FROM {TABLE} WHERE id = %s"
            assert cursor.execute(query, (1,)).fetchone() == ROW, binary
            assert cursor.execute(query, (2,)).fetchone() == (None,) * len(ROW), binary


def prepared_statements_of_several_connections():
    """Each connection has its own number; a statement of another one would show another number."""
    failures = []

    def work(number):
        try:
            with connect(prepare_threshold=0) as connection:
                for turn in range(25):
                    with connection.transaction():
                        # First: a transaction that reads before it writes may have to be repeated.
                        insert = f"INSERT INTO {TABLE}(id, n) VALUES (%s, %s)"
                        connection.execute(insert, (1000 + number, turn))
                        for factor in (1, 2, 3):
                            query = f"SELECT %s::int * {factor}, '{number}'"
                            row = connection.execute(query, (turn,)).fetchone()
                            assert row == (turn * factor, str(number)), row
        except Exception as failure:  # of any kind: the test must fail
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    with connect() as connection:
        count = connection.execute(f"SELECT count(*) FROM {TABLE} WHERE id >= 1000").fetchone()
        assert count == (6 * 25,), count


def rollbacks_and_errors():
    with connect() as connection:
        count = f"SELECT count(*) FROM {TABLE} WHERE id = 20"
        connection.execute(f"INSERT INTO {TABLE}(id) VALUES (20)")
        connection.rollback()
        assert connection.execute(count).fetchone() == (0,)
        connection.execute(f"INSERT INTO {TABLE}(id) VALUES (20)")
        try:
            connection.execute("SELECT nosuch")
            raise AssertionError("no error")
        except psycopg.errors.UndefinedColumn:
            pass
        try:
            connection.execute("SELECT 1")
            raise AssertionError("a failed transaction goes on")
        except psycopg.errors.InFailedSqlTransaction:
            pass
        connection.rollback()
        assert connection.execute(count).fetchone() == (0,)
        connection.execute(f"INSERT INTO {TABLE}(id) VALUES (20)")
        try:
            with connection.transaction():
                connection.execute(f"INSERT INTO {TABLE}(id) VALUES (20)")
                connection.execute("SELECT nosuch")
        except psycopg.errors.UndefinedColumn:
            pass
        assert connection.execute(count).fetchone() == (1,)


def copies():
    with connect() as connection:
        with connection.cursor() as cursor:
            with cursor.copy(f"COPY {TABLE}(id, n, s) FROM STDIN") as copy:
                for number in range(5000):
                    copy.write_row((30, number, None if number % 2 else f"line {number}\t\\"))
        connection.commit()
        with connection.cursor() as cursor:
            query = f"COPY (SELECT n, s FROM {TABLE} WHERE id = 30 ORDER BY n) TO STDOUT"
            with cursor.copy(query) as copy:
                rows = list(copy.rows())
        assert len(rows) == 5000
        assert rows[2:4] == [("2", "line 2\t\\"), ("3", None)], rows[2:4]
        try:
            with connection.cursor() as cursor:
                with cursor.copy(f"COPY {TABLE}(id, n) FROM STDIN") as copy:
                    copy.write_row((31, "no number"))
            raise AssertionError("no error")
        except psycopg.errors.InvalidTextRepresentation:
            connection.rollback()
        try:
            with connection.cursor() as cursor:
                with cursor.copy(f"COPY {TABLE}(id, n) FROM STDIN") as copy:
                    copy.write_row((31, 1))
                    raise ZeroDivisionError
        except (ZeroDivisionError, psycopg.errors.QueryCanceled):  # older versions report the server's
            connection.rollback()
        assert connection.execute(f"SELECT count(*) FROM {TABLE} WHERE id = 31").fetchone() == (0,)


def cursors_and_pipelines():
    with connect() as connection:
        with connection.cursor("on_the_server") as cursor:
            cursor.itersize = 100
            cursor.execute(f"SELECT n FROM {TABLE} WHERE id = 30 ORDER BY n")
            assert [row[0] for row in cursor] == list(range(5000))
        connection.commit()
        with connection.pipeline():
            # It writes first: the embedded back-end refuses a write behind a read (40001) if another
            # session has written meanwhile.
            insert = f"INSERT INTO {TABLE}(id, n) VALUES (40, %s) RETURNING n"
            first = connection.execute(insert, (500,))
            cursors = [connection.execute("SELECT %s::int", (number,)) for number in range(50)]
        assert [cursor.fetchone()[0] for cursor in cursors] == list(range(50))
        assert first.fetchone() == (500,)
        try:
            with connection.pipeline():
                connection.execute("SELECT nosuch")
                connection.execute("SELECT 1")
            raise AssertionError("no error")
        except psycopg.errors.UndefinedColumn:
            connection.rollback()
        assert connection.execute("SELECT 2").fetchone() == (2,)


def cancels_and_timeouts():
    with connect() as connection:
        is_over = threading.Event()

        def cancel():
            while not is_over.wait(0.05):
                connection.cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        try:
            connection.execute(SLOW)
            raise AssertionError("no cancel")
        except psycopg.errors.QueryCanceled:
            pass
        finally:
            is_over.set()
            thread.join()
        # The last cancel may be on its way: it must hit nothing else than this connection.
        while connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.rollback()
        connection.execute("SET LOCAL statement_timeout = 50")
        try:
            connection.execute(SLOW)
            raise AssertionError("no time-out")
        except psycopg.errors.QueryCanceled:
            connection.rollback()
    with connect() as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)


create()
typed_values_and_nulls()
prepared_statements_of_several_connections()
rollbacks_and_errors()
copies()
cursors_and_pipelines()
cancels_and_timeouts()
