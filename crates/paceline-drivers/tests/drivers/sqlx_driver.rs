//! sqlx, with its pool of connections.

use std::time::Duration;

use futures_util::{future, TryStreamExt};
use paceline_drivers::{System, Systems};
use sqlx::{
    postgres::{PgConnectOptions, PgPoolCopyExt, PgPoolOptions},
    Acquire, Connection, PgConnection, PgPool, Row,
};

#[test]
fn sqlx_works() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for system in Systems::shared().iter() {
        let table = system.table("sqlx");
        let tried = runtime.block_on(try_all(system, &table));
        tried.unwrap_or_else(|error| panic!("{system}: {error:?}"));
    }
}

async fn try_all(system: &System, table: &str) -> Result<(), sqlx::Error> {
    let options: PgConnectOptions = system.url().parse()?;
    let pool = PgPoolOptions::new()
        .max_connections(6)
        .acquire_timeout(Duration::from_secs(30))
        .connect_with(options.ssl_mode(sqlx::postgres::PgSslMode::Disable))
        .await?;
    let columns = "id int, n int, big bigint, f float8, s text, b bytea, ok bool";
    sqlx::raw_sql(&format!(
        "DROP TABLE IF EXISTS {table}; CREATE TABLE {table}({columns})"
    ))
    .execute(&pool)
    .await?;
    typed_values_and_nulls(&pool, table).await?;
    let work = (0..6).map(|number| transactions(&pool, table, number));
    future::try_join_all(work).await?;
    let count = format!("SELECT count(*) FROM {table} WHERE id >= 1000");
    assert_eq!(number(&pool, &count).await?, 150);
    rollbacks_and_errors(&pool, table).await?;
    copies(&pool, table).await?;
    timeouts(&pool, system).await?;
    pool.close().await;
    Ok(())
}

async fn number(pool: &PgPool, query: &str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(query).fetch_one(pool).await
}

async fn typed_values_and_nulls(pool: &PgPool, table: &str) -> Result<(), sqlx::Error> {
    let insert = format!("INSERT INTO {table} VALUES ($1, $2, $3, $4, $5, $6, $7)");
    let values = sqlx::query(&insert)
        .bind(1_i32)
        .bind(7_i32)
        .bind(1_i64 << 40)
        .bind(1.5_f64)
        .bind("é")
        .bind(&b"\0\x01"[..])
        .bind(true);
    values.execute(pool).await?;
    let nulls = sqlx::query(&insert)
        .bind(2_i32)
        .bind(None::<i32>)
        .bind(None::<i64>)
        .bind(None::<f64>)
        .bind(None::<String>)
        .bind(None::<Vec<u8>>)
        .bind(None::<bool>);
    nulls.execute(pool).await?;
    let select = format!("SELECT n, big, f, s, b, ok FROM {table} WHERE id = $1");
    type Values = (i32, i64, f64, String, Vec<u8>, bool);
    let row: Values = sqlx::query_as(&select).bind(1_i32).fetch_one(pool).await?;
    assert_eq!(row, (7, 1 << 40, 1.5, "é".to_owned(), vec![0, 1], true));
    let row = sqlx::query(&select).bind(2_i32).fetch_one(pool).await?;
    assert_eq!(row.try_get::<Option<i32>, _>(0)?, None);
    assert_eq!(row.try_get::<Option<String>, _>(3)?, None);
    Ok(())
}

/// Each worker has its own number; a statement of another one would show another number.
async fn transactions(pool: &PgPool, table: &str, number: i32) -> Result<(), sqlx::Error> {
    let select = format!("SELECT $1::int + 1, '{number}'");
    let insert = format!("INSERT INTO {table}(id, n) VALUES ($1, $2)");
    for turn in 0..25_i32 {
        let mut transaction = pool.begin().await?;
        sqlx::query(&insert)
            .bind(1000 + number)
            .bind(turn)
            .execute(&mut *transaction)
            .await?;
        let row: (i32, String) = sqlx::query_as(&select)
            .bind(turn)
            .fetch_one(&mut *transaction)
            .await?;
        assert_eq!(row, (turn + 1, number.to_string()));
        transaction.commit().await?;
    }
    Ok(())
}

/// The SQLSTATE of a failed statement.
fn code<T: std::fmt::Debug>(result: Result<T, sqlx::Error>) -> String {
    let error = result.expect_err("the statement fails");
    let database = error.as_database_error();
    let code = database.and_then(|error| error.code().map(|code| code.into_owned()));
    code.unwrap_or_else(|| error.to_string())
}

async fn rollbacks_and_errors(pool: &PgPool, table: &str) -> Result<(), sqlx::Error> {
    let insert = format!("INSERT INTO {table}(id) VALUES (20)");
    let count = format!("SELECT count(*) FROM {table} WHERE id = 20");
    let mut transaction = pool.begin().await?;
    sqlx::query(&insert).execute(&mut *transaction).await?;
    transaction.rollback().await?;
    assert_eq!(number(pool, &count).await?, 0);
    let mut transaction = pool.begin().await?;
    sqlx::query(&insert).execute(&mut *transaction).await?;
    let mut inner = transaction.begin().await?;
    sqlx::query(&insert).execute(&mut *inner).await?;
    let failed = sqlx::query("SELECT nosuch").execute(&mut *inner).await;
    assert_eq!(code(failed), "42703");
    inner.rollback().await?;
    transaction.commit().await?;
    assert_eq!(number(pool, &count).await?, 1);
    // A failed transaction that is dropped does not harm the next user of its connection.
    for _ in 0..12 {
        let mut transaction = pool.begin().await?;
        sqlx::query(&insert).execute(&mut *transaction).await?;
        let failed = sqlx::query("SELECT nosuch")
            .execute(&mut *transaction)
            .await;
        assert_eq!(code(failed), "42703");
    }
    assert_eq!(number(pool, &count).await?, 1);
    Ok(())
}

async fn copies(pool: &PgPool, table: &str) -> Result<(), sqlx::Error> {
    let mut sink = pool
        .copy_in_raw(&format!("COPY {table}(id, n) FROM STDIN"))
        .await?;
    for number in 0..2000 {
        sink.send(format!("30\t{number}\n").into_bytes()).await?;
    }
    assert_eq!(sink.finish().await?, 2000);
    let copy = format!("COPY (SELECT n FROM {table} WHERE id = 30 ORDER BY n) TO STDOUT");
    let pieces: Vec<bytes::Bytes> = pool.copy_out_raw(&copy).await?.try_collect().await?;
    let expected: Vec<u8> = (0..2000)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .collect();
    assert_eq!(pieces.concat(), expected);
    let mut sink = pool
        .copy_in_raw(&format!("COPY {table}(id, n) FROM STDIN"))
        .await?;
    sink.send(&b"31\t1\n"[..]).await?;
    // The server reports this as an error.
    sink.abort("the client has changed its mind").await?;
    let count = format!("SELECT count(*) FROM {table} WHERE id = 31");
    assert_eq!(number(pool, &count).await?, 0);
    Ok(())
}

async fn timeouts(pool: &PgPool, system: &System) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    sqlx::query("SET LOCAL statement_timeout = 50")
        .execute(&mut *transaction)
        .await?;
    let late = sqlx::query(system.slow()).execute(&mut *transaction).await;
    assert_eq!(code(late), "57014");
    transaction.rollback().await?;
    // A connection that is closed in the middle of a query: the next one is not harmed.
    let mut own = PgConnection::connect(&system.url()).await?;
    let query = sqlx::query(system.slow()).execute(&mut own);
    assert!(tokio::time::timeout(Duration::from_millis(100), query)
        .await
        .is_err());
    drop(own);
    assert_eq!(number(pool, "SELECT 4::bigint").await?, 4);
    Ok(())
}
