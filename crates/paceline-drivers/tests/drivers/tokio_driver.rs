//! tokio-postgres.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::{future, SinkExt, TryStreamExt};
use paceline_drivers::{System, Systems};
use tokio::time::timeout;
use tokio_postgres::{error::SqlState, Client, NoTls};

type Failure = tokio_postgres::Error;

async fn connect(system: &System) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(&system.url(), NoTls).await?;
    // Its error is the error of the client's next request.
    tokio::spawn(connection);
    Ok(client)
}

#[test]
fn tokio_postgres_works() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for system in Systems::shared().iter() {
        let table = system.table("tokio");
        let tried = runtime.block_on(try_all(system, &table));
        tried.unwrap_or_else(|error| panic!("{system}: {error:?}"));
    }
}

async fn try_all(system: &System, table: &str) -> Result<(), Failure> {
    let mut client = connect(system).await?;
    let columns = "id int, n int, big bigint, f float8, s text, b bytea, ok bool";
    client
        .batch_execute(&format!(
            "DROP TABLE IF EXISTS {table}; CREATE TABLE {table}({columns})"
        ))
        .await?;
    typed_values_and_nulls(&client, table).await?;
    let work = (0..6).map(|number| transactions(system, table, number));
    future::try_join_all(work).await?;
    let count = format!("SELECT count(*) FROM {table} WHERE id >= 1000");
    assert_eq!(client.query_one(&count, &[]).await?.get::<_, i64>(0), 150);
    rollbacks_and_errors(&mut client, table).await?;
    pipelines(&client).await?;
    copies(&client, table).await?;
    portals(&mut client, table).await?;
    cancels_and_timeouts(&client, system).await
}

async fn typed_values_and_nulls(client: &Client, table: &str) -> Result<(), Failure> {
    type Row<'r> = (i32, i64, f64, &'r str, &'r [u8], bool);
    let row: Row<'_> = (7, 1 << 40, 1.5, "é", &[0, 1], true);
    let insert = format!("INSERT INTO {table} VALUES ($1, $2, $3, $4, $5, $6, $7)");
    client
        .execute(
            &insert,
            &[&1_i32, &row.0, &row.1, &row.2, &row.3, &row.4, &row.5],
        )
        .await?;
    let nulls = (
        None::<i32>,
        None::<i64>,
        None::<f64>,
        None::<&str>,
        None::<&[u8]>,
        None::<bool>,
    );
    client
        .execute(
            &insert,
            &[
                &2_i32, &nulls.0, &nulls.1, &nulls.2, &nulls.3, &nulls.4, &nulls.5,
            ],
        )
        .await?;
    let select = format!("SELECT n, big, f, s, b, ok FROM {table} WHERE id = $1");
    let seen = client.query_one(&select, &[&1_i32]).await?;
    let seen: Row<'_> = (
        seen.get(0),
        seen.get(1),
        seen.get(2),
        seen.get(3),
        seen.get(4),
        seen.get(5),
    );
    assert_eq!(seen, row);
    let seen = client.query_one(&select, &[&2_i32]).await?;
    assert_eq!(seen.get::<_, Option<i32>>(0), None);
    assert_eq!(seen.get::<_, Option<&str>>(3), None);
    Ok(())
}

/// Each connection has its own number; a statement of another one would show another number.
async fn transactions(system: &System, table: &str, number: i32) -> Result<(), Failure> {
    let mut client = connect(system).await?;
    let select = format!("SELECT $1::int + 1, '{number}'");
    let select = client.prepare(&select).await?;
    let insert = format!("INSERT INTO {table}(id, n) VALUES ($1, $2)");
    let insert = client.prepare(&insert).await?;
    for turn in 0..25_i32 {
        let transaction = client.transaction().await?;
        let values = [1000 + number, turn];
        transaction
            .execute(&insert, &[&values[0], &values[1]])
            .await?;
        let row = transaction.query_one(&select, &[&turn]).await?;
        assert_eq!(row.get::<_, i32>(0), turn + 1);
        assert_eq!(row.get::<_, &str>(1), number.to_string());
        transaction.commit().await?;
    }
    Ok(())
}

async fn rollbacks_and_errors(client: &mut Client, table: &str) -> Result<(), Failure> {
    let insert = format!("INSERT INTO {table}(id) VALUES (20)");
    let count = format!("SELECT count(*) FROM {table} WHERE id = 20");
    let transaction = client.transaction().await?;
    transaction.execute(&insert, &[]).await?;
    transaction.rollback().await?;
    let mut transaction = client.transaction().await?;
    transaction.execute(&insert, &[]).await?;
    let inner = transaction.transaction().await?;
    inner.execute(&insert, &[]).await?;
    let failed = inner
        .query("SELECT nosuch", &[])
        .await
        .expect_err("an error");
    assert_eq!(failed.code(), Some(&SqlState::UNDEFINED_COLUMN));
    let failed = inner.query("SELECT 1", &[]).await.expect_err("an error");
    assert_eq!(failed.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION));
    inner.rollback().await?;
    transaction.commit().await?;
    assert_eq!(client.query_one(&count, &[]).await?.get::<_, i64>(0), 1);
    // A transaction that is dropped is rolled back.
    let transaction = client.transaction().await?;
    transaction.execute(&insert, &[]).await?;
    drop(transaction);
    assert_eq!(client.query_one(&count, &[]).await?.get::<_, i64>(0), 1);
    Ok(())
}

/// Requests without a wait between them, some of which fail.
async fn pipelines(client: &Client) -> Result<(), Failure> {
    let good = client.prepare("SELECT $1::int").await?;
    // The absolute value of the least number is out of range.
    let bad = client.prepare("SELECT abs($1::bigint)").await;
    let numbers = 0..40_i32;
    let answers = numbers.clone().map(|number| {
        let good = &good;
        async move { client.query_one(good, &[&number]).await }
    });
    let rows = future::try_join_all(answers).await?;
    let seen: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(seen, numbers.collect::<Vec<_>>());
    let bad = bad?;
    let answers = (0..40_i64).map(|number| {
        let (bad, value) = (&bad, if number == 5 { i64::MIN } else { number });
        async move { (number, client.query_one(bad, &[&value]).await) }
    });
    for (number, answer) in future::join_all(answers).await {
        assert_eq!(answer.is_err(), number == 5, "{number}");
    }
    Ok(())
}

async fn copies(client: &Client, table: &str) -> Result<(), Failure> {
    let copy = format!("COPY {table}(id, n) FROM STDIN");
    let mut sink = pin!(client.copy_in::<_, Bytes>(&copy).await?);
    for number in 0..5000 {
        sink.feed(Bytes::from(format!("30\t{number}\n"))).await?;
    }
    assert_eq!(sink.finish().await?, 5000);
    let copy = format!("COPY (SELECT n FROM {table} WHERE id = 30 ORDER BY n) TO STDOUT");
    let pieces: Vec<Bytes> = client.copy_out(&copy).await?.try_collect().await?;
    let expected: Vec<u8> = (0..5000)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .collect();
    assert_eq!(pieces.concat(), expected);
    // A copy whose sink is dropped is refused by the server, and nothing of it remains.
    let copy = format!("COPY {table}(id, n) FROM STDIN");
    let mut sink = Box::pin(client.copy_in::<_, Bytes>(&copy).await?);
    sink.send(Bytes::from("31\t1\n")).await?;
    drop(sink);
    let count = format!("SELECT count(*) FROM {table} WHERE id = 31");
    assert_eq!(client.query_one(&count, &[]).await?.get::<_, i64>(0), 0);
    Ok(())
}

async fn portals(client: &mut Client, table: &str) -> Result<(), Failure> {
    let transaction = client.transaction().await?;
    let select = format!("SELECT n FROM {table} WHERE id = $1 ORDER BY n");
    let portal = transaction.bind(&select, &[&30_i32]).await?;
    let mut seen = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 700).await?;
        if rows.is_empty() {
            break;
        }
        seen.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
    }
    assert_eq!(seen, (0..5000).collect::<Vec<_>>());
    transaction.commit().await
}

async fn cancels_and_timeouts(client: &Client, system: &System) -> Result<(), Failure> {
    let token = client.cancel_token();
    let cancels = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            // The query has ended, if that fails.
            let _ = token.cancel_query(NoTls).await;
        }
    };
    let query = client.batch_execute(system.slow());
    let ended = tokio::select! {
        ended = query => ended,
        () = async { timeout(Duration::from_secs(60), cancels).await.unwrap_or(()) } => {
            panic!("{system}: no cancel")
        }
    };
    let code = ended.expect_err("it is cancelled");
    assert_eq!(code.code(), Some(&SqlState::QUERY_CANCELED));
    // The last cancel may be on its way; a transaction that it hits has failed, and no other one.
    while client
        .batch_execute("BEGIN; SET LOCAL statement_timeout = 50")
        .await
        .is_err()
    {
        client.batch_execute("ROLLBACK").await?;
    }
    let late = client
        .batch_execute(system.slow())
        .await
        .expect_err("a time-out");
    assert_eq!(late.code(), Some(&SqlState::QUERY_CANCELED));
    client.batch_execute("ROLLBACK").await
}
