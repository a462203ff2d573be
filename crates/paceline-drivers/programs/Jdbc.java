import java.io.ByteArrayInputStream;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;

import org.postgresql.PGConnection;

/** Java's driver through the front-end. The environment names the system. */
public final class Jdbc {
    private static final String TABLE = System.getenv("TRIAL_TABLE");
    private static final String SLOW = System.getenv("TRIAL_SLOW");

    private static Connection connect() throws SQLException {
        String place = System.getenv("PGHOST") + ":" + System.getenv("PGPORT");
        String url = "jdbc:postgresql://" + place + "/" + System.getenv("PGDATABASE");
        return DriverManager.getConnection(url + "?sslmode=disable&prepareThreshold=2", System.getenv("PGUSER"), "");
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = connect()) {
            create(connection);
            typedValuesAndNulls(connection);
            preparedStatementsOfSeveralConnections(connection);
            rollbacksAndErrors(connection);
            batchesAndFetchSizes(connection);
            copies(connection);
            cancelsAndTimeouts(connection);
        }
    }

    private static void create(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS " + TABLE);
            statement.execute("CREATE TABLE " + TABLE + "(id int, n int, big bigint, f float8, s text, b bytea,"
                + " at timestamp, x numeric(8,2), ok bool, u uuid)");
        }
    }

    private static void typedValuesAndNulls(Connection connection) throws SQLException {
        Object[] values = {7, 1L << 40, 1.5, "é", new byte[] {0, 1}, Timestamp.valueOf("2024-02-29 01:02:03.000004"),
            new BigDecimal("12.30"), true, new UUID(0, 5)};
        int[] types = {Types.INTEGER, Types.BIGINT, Types.DOUBLE, Types.VARCHAR, Types.BINARY, Types.TIMESTAMP,
            Types.NUMERIC, Types.BOOLEAN, Types.OTHER};
        String columns = "n, big, f, s, b, at, x, ok, u";
        String insert = "INSERT INTO " + TABLE + "(id, " + columns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        // More often than the threshold, so that named statements and binary values are used too.
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            for (int id = 1; id <= 6; id++) {
                statement.setInt(1, id);
                for (int index = 0; index < values.length; index++) {
                    if (id % 2 == 0) {
                        statement.setNull(index + 2, types[index]);
                    } else {
                        statement.setObject(index + 2, values[index]);
                    }
                }
                check(1, statement.executeUpdate());
            }
        }
        String select = "SELECT " + columns + " FROM " + TABLE + " WHERE id = ?";
        try (PreparedStatement statement = connection.prepareStatement(select)) {
            for (int id = 1; id <= 6; id++) {
                statement.setInt(1, id);
                try (ResultSet rows = statement.executeQuery()) {
                    check(true, rows.next());
                    for (int index = 0; index < values.length; index++) {
                        Object seen = rows.getObject(index + 1);
                        check(shown(id % 2 == 0 ? null : values[index]), shown(seen));
                    }
                }
            }
        }
    }

    /** Each connection has its own number; a statement of another one would show another number. */
    private static void preparedStatementsOfSeveralConnections(Connection connection) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(6);
        List<Future<Void>> ends = new ArrayList<>();
        for (int number = 0; number < 6; number++) {
            final int own = number;
            ends.add(threads.submit((Callable<Void>) () -> {
                transactions(own);
                return null;
            }));
        }
        for (Future<Void> end : ends) {
            end.get();
        }
        threads.shutdown();
        check(150L, number(connection, "SELECT count(*) FROM " + TABLE + " WHERE id >= 1000"));
    }

    private static void transactions(int number) throws SQLException {
        try (Connection connection = connect()) {
            connection.setAutoCommit(false);
            try (PreparedStatement select = connection.prepareStatement("SELECT ? + 1, '" + number + "'");
                    PreparedStatement insert = connection.prepareStatement("INSERT INTO " + TABLE
                        + "(id, n) VALUES (?, ?)")) {
                for (int turn = 0; turn < 25; turn++) {
                    insert.setInt(1, 1000 + number);
                    insert.setInt(2, turn);
                    check(1, insert.executeUpdate());
                    select.setInt(1, turn);
                    try (ResultSet rows = select.executeQuery()) {
                        check(true, rows.next());
                        check(turn + 1, rows.getInt(1));
                        check(String.valueOf(number), rows.getString(2));
                    }
                    connection.commit();
                }
            }
        }
    }

    private static void rollbacksAndErrors(Connection connection) throws SQLException {
        String insert = "INSERT INTO " + TABLE + "(id) VALUES (20)";
        String count = "SELECT count(*) FROM " + TABLE + " WHERE id = 20";
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate(insert);
            connection.rollback();
            check(0L, number(connection, count));
            statement.executeUpdate(insert);
            check("42703", failureOf(() -> statement.execute("SELECT nosuch")));
            check("25P02", failureOf(() -> statement.execute("SELECT 1")));
            connection.rollback();
            check(0L, number(connection, count));
            statement.executeUpdate(insert);
            Savepoint savepoint = connection.setSavepoint("here");
            statement.executeUpdate(insert);
            check("42703", failureOf(() -> statement.execute("SELECT nosuch")));
            connection.rollback(savepoint);
            connection.commit();
            check(1L, number(connection, count));
            connection.commit();
        }
        connection.setAutoCommit(true);
    }

    private static void batchesAndFetchSizes(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        String insert = "INSERT INTO " + TABLE + "(id, n) VALUES (50, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            for (int n = 0; n < 1000; n++) {
                statement.setInt(1, n);
                statement.addBatch();
            }
            check(1000, Arrays.stream(statement.executeBatch()).sum());
        }
        String select = "SELECT n FROM " + TABLE + " WHERE id = 50 ORDER BY n";
        try (PreparedStatement statement = connection.prepareStatement(select)) {
            statement.setFetchSize(70);
            try (ResultSet rows = statement.executeQuery()) {
                for (int n = 0; n < 1000; n++) {
                    check(true, rows.next());
                    check(n, rows.getInt(1));
                }
                check(false, rows.next());
            }
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    private static void copies(Connection connection) throws Exception {
        StringBuilder lines = new StringBuilder();
        for (int n = 0; n < 3000; n++) {
            lines.append("30\t").append(n).append('\n');
        }
        byte[] bytes = lines.toString().getBytes(StandardCharsets.UTF_8);
        PGConnection own = connection.unwrap(PGConnection.class);
        String in = "COPY " + TABLE + "(id, n) FROM STDIN";
        check(3000L, own.getCopyAPI().copyIn(in, new ByteArrayInputStream(bytes)));
        StringWriter out = new StringWriter();
        String query = "COPY (SELECT id, n FROM " + TABLE + " WHERE id = 30 ORDER BY n) TO STDOUT";
        check(3000L, own.getCopyAPI().copyOut(query, out));
        check(lines.toString(), out.toString());
        byte[] bad = "31\tno number\n".getBytes(StandardCharsets.UTF_8);
        check("22P02", failureOf(() -> own.getCopyAPI().copyIn(in, new ByteArrayInputStream(bad))));
        check(0L, number(connection, "SELECT count(*) FROM " + TABLE + " WHERE id = 31"));
    }

    private static void cancelsAndTimeouts(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            AtomicBoolean isOver = new AtomicBoolean();
            Thread canceller = new Thread(() -> {
                while (!isOver.get()) {
                    try {
                        Thread.sleep(50);
                        statement.cancel();
                    } catch (SQLException | InterruptedException failure) {
                        throw new IllegalStateException(failure);
                    }
                }
            });
            canceller.start();
            check("57014", failureOf(() -> statement.execute(SLOW)));
            isOver.set(true);
            canceller.join();
            statement.setQueryTimeout(1);
            check("57014", failureOf(() -> statement.execute(SLOW)));
            statement.setQueryTimeout(0);
            connection.setAutoCommit(false);
            statement.execute("SET LOCAL statement_timeout = 50");
            check("57014", failureOf(() -> statement.execute(SLOW)));
            connection.rollback();
            connection.setAutoCommit(true);
        }
        check(4L, number(connection, "SELECT 4"));
    }

    private interface Action {
        void run() throws Exception;
    }

    /** The SQLSTATE of an action that must fail. */
    private static String failureOf(Action action) {
        try {
            action.run();
            return "no error";
        } catch (SQLException failure) {
            return failure.getSQLState();
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static long number(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            check(true, rows.next());
            return rows.getLong(1);
        }
    }

    private static String shown(Object value) {
        return value instanceof byte[] ? Arrays.toString((byte[]) value) : String.valueOf(value);
    }

    private static void check(Object expected, Object seen) {
        if (!expected.equals(seen)) {
            throw new AssertionError("expected " + expected + ", seen " + seen);
        }
    }
}
