//! Handles that belong to certain threads: a bank with four clerks, each with a till.
//!
//! ```text
//! cargo run --release --example pinned
//! ```
//!
//! A till is plain memory of its clerk: no lock, and nothing that could be given to another thread
//! (an `Rc` in a `thread_local`). So an account is *pinned* to the clerk that has its money: the
//! leader that sees its customer hands the customer over. Two tellers share the desk for letters:
//! those belong to one of two. Advice is *sticky*: a customer continues with the clerk that knows
//! the story, if that one is free. And any clerk says what time it is.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, ThreadId},
    time::Duration,
};

use paceline::{Context, Handle, Interest, Next, Pool};

const CLERKS: usize = 4;
/// How often each customer returns.
const VISITS: u64 = 100;

thread_local! {
    /// What a clerk has: the balance of each of its accounts.
    static TILL: RefCell<BTreeMap<usize, Rc<Cell<u64>>>> = RefCell::default();
}

/// How often which clerk served whom.
type Served = Arc<Mutex<BTreeMap<(String, usize), u64>>>;

fn main() -> io::Result<()> {
    let pool = Pool::builder().threads(CLERKS).name("clerk").build()?;
    let clerks = pool.inspect().thread_ids();
    let served = Served::default();
    let mut customers = Vec::new();
    for account in 0..2 * CLERKS {
        let (handle, customer) = open(&pool, account, &served)?;
        handle.pin_to(&[clerks[account % CLERKS]])?;
        customers.push((handle, customer));
    }
    for (what, clerks) in [
        ("letters", &clerks[..2]),
        ("advice", &[]),
        ("the time", &[]),
    ] {
        let (handle, customer) = ask(&pool, what, &served)?;
        match what {
            "letters" => handle.pin_to(clerks)?,
            "advice" => handle.prefer_last_thread(Duration::from_secs(1))?,
            _ => {}
        }
        customers.push((handle, customer));
    }
    let visits = customers.into_iter().map(|(handle, customer)| {
        // From now on: the first visit, too, is at the right place.
        handle.set_interest(Interest::READ)?;
        Ok(thread::spawn(move || visit(customer)))
    });
    let visits: Vec<_> = visits.collect::<io::Result<_>>()?;
    for visit in visits {
        visit.join().expect("a customer does not panic")?;
    }
    report(&served);
    let snapshot = pool.snapshot();
    println!(
        "{} visits were handed to the clerk they belong to",
        snapshot.handed
    );
    println!("{}", pool.shutdown(Duration::from_secs(5)));
    Ok(())
}

/// A customer visits repeatedly, and waits for the answer each time.
fn visit(mut customer: UnixStream) -> io::Result<()> {
    let mut answer = [0; 8];
    for visit in 1..=VISITS {
        customer.write_all(&[1])?;
        customer.read_exact(&mut answer)?;
        assert_eq!(u64::from_le_bytes(answer), visit, "no visit is lost");
    }
    Ok(())
}

/// An account: each visit brings one coin. Its balance is in the till of the clerk that is called,
/// and of no other.
fn open(pool: &Pool, account: usize, served: &Served) -> io::Result<(Handle, UnixStream)> {
    serve(pool, format!("account {account}"), served, move || {
        let balance = TILL.with_borrow_mut(|till| Rc::clone(till.entry(account).or_default()));
        balance.set(balance.get() + 1);
        balance.get()
    })
}

/// Something that any clerk can do: how often was it asked?
fn ask(pool: &Pool, what: &str, served: &Served) -> io::Result<(Handle, UnixStream)> {
    let mut asked = 0;
    serve(pool, what.to_owned(), served, move || {
        asked += 1;
        asked
    })
}

/// A desk: for each coin it answers with a number. No clerk is called there before it is opened.
fn serve(
    pool: &Pool,
    what: String,
    served: &Served,
    mut answer: impl FnMut() -> u64 + Send + 'static,
) -> io::Result<(Handle, UnixStream)> {
    let (desk, customer) = UnixStream::pair()?;
    let (served, clerks) = (Arc::clone(served), pool.inspect().thread_ids());
    let handler = move |cx: &mut Context<'_, UnixStream>| {
        if cx.read(&mut [0])? == 0 {
            return Ok(Next::Close);
        }
        let key = (what.clone(), number(&clerks));
        *locked(&served).entry(key).or_default() += 1;
        cx.write_all(&answer().to_le_bytes())?;
        Ok(Next::Continue)
    };
    let handle = pool.register(desk, Interest::NONE, handler)?;
    Ok((handle, customer))
}

/// Which clerk the calling thread is.
fn number(clerks: &[ThreadId]) -> usize {
    let me = thread::current().id();
    let place = clerks.iter().position(|clerk| *clerk == me);
    place.expect("handlers are called by the pool's threads")
}

fn report(served: &Served) {
    println!("who was served how often by clerk 0, 1, 2, 3:");
    let served = locked(served);
    let mut whom: Vec<_> = served.keys().map(|(what, _)| what).collect();
    whom.dedup();
    for what in whom {
        let count = |clerk| served.get(&(what.clone(), clerk)).copied().unwrap_or(0);
        let counts: Vec<_> = (0..CLERKS)
            .map(|clerk| format!("{:>4}", count(clerk)))
            .collect();
        println!("  {what:<12}{}", counts.join(" "));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
