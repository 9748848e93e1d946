//! A server beside others that compute. Twin: bench/service_bench.cpp. bench/load/mixed_load.c says how a message looks.
//!
//! A task keeps its worker until it awaits, so what computes for long, or blocks, belongs into `spawn_blocking`: the bursts,
//! the library's calls and the hogs. 20 us, as in open-loop, are short enough for the task itself.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;

use crate::measure::{ns, SplitMix64};
use crate::net::{check, listen, run_load};
use crate::work::compute;
use crate::{fail, Bench, Workload};

pub const WORKLOADS: &[Workload] = &[("mixed-service", mixed_service), ("open-loop", open_loop)];

const TABLE_SIZE: usize = 4096;
const LOOKUP: u32 = 0;
const BURST: u32 = 1;
const LIBRARY: u32 = 2;

/// About 0.1 ms: what takes longer is a case for `spawn_blocking`.
const STEPS_IN_A_TASK: u32 = 100_000;

/// A function as of any C library, which knows nothing of the runtime.
fn call_library(value: u64, us: u32) -> u64 {
    let t = libc::timespec { tv_sec: 0, tv_nsec: us as libc::c_long * 1000 };
    unsafe { libc::nanosleep(&t, std::ptr::null_mut()) };
    !value
}

async fn answer(kind: u32, amount: u32, value: u64, table: &[u64]) -> u64 {
    match kind {
        LOOKUP => table[value as usize % TABLE_SIZE],
        BURST if amount <= STEPS_IN_A_TASK => compute(value, amount as u64),
        BURST => spawn_blocking(move || compute(value, amount as u64)).await.unwrap(),
        LIBRARY => spawn_blocking(move || call_library(value, amount)).await.unwrap(),
        _ => fail("mixed-service: a request of no kind"),
    }
}

async fn serve(mut connection: TcpStream, table: Arc<Vec<u64>>) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut message = [0u8; 64];
    loop {
        match connection.read_exact(&mut message).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            done => done?,
        };
        let word = |at: usize| u32::from_ne_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]]);
        let mut value = [0; 8];
        value.copy_from_slice(&message[16..24]);
        let answer = answer(word(8), word(12), u64::from_ne_bytes(value), &table).await;
        message[16..24].copy_from_slice(&answer.to_ne_bytes());
        connection.write_all(&message).await?;
    }
}

/// Serves until the program ends, with a task for each connection. The port.
fn start_service(b: &Bench) -> u16 {
    let mut random = SplitMix64(1);
    let table = Arc::new((0..TABLE_SIZE).map(|_| random.next()).collect::<Vec<u64>>());
    let (listener, port) = listen(b);
    b.runtime.spawn(accept_all(listener, table));
    port
}

async fn accept_all(listener: TcpListener, table: Arc<Vec<u64>>) {
    loop {
        let (connection, _) = check(listener.accept().await);
        let table = table.clone();
        tokio::spawn(async move { check(serve(connection, table).await) });
    }
}

fn load_words<'a>(b: &Bench, words: &[&'a str]) -> Vec<&'a str> {
    let mut words = words.to_vec();
    if b.procs > 1 {
        words.push("--free");
    }
    words
}

/// A cache line each, so that counting disturbs no other.
#[repr(align(64))]
#[derive(Default)]
struct Hog {
    units: AtomicU64,
    value: AtomicU64, // kept, so that the work is not in vain
}

fn mixed_service(b: &Bench) {
    let port = start_service(b);
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..b.procs).map(|_| Arc::new(Hog::default())).collect();
    for hog in hogs.clone() {
        let stop = stop.clone();
        b.runtime.spawn_blocking(move || {
            while !stop.load(Relaxed) {
                hog.value.store(compute(hog.value.load(Relaxed), 100_000), Relaxed);
                hog.units.fetch_add(1, Relaxed);
            }
        });
    }
    let start = Instant::now();
    let rate = (2000 * b.procs).to_string();
    let words = ["--connections", "256", "--rate", &rate, "--seconds", if b.quick { "0.5" } else { "4" }];
    run_load(b, "mixed", port, &load_words(b, &words));
    let units: u64 = hogs.iter().map(|hog| hog.units.load(Relaxed)).sum();
    let took: Duration = start.elapsed();
    stop.store(true, Relaxed);
    b.add("hogs", ns(took) / 1e3 * b.procs as f64 / units as f64, "us");
}

fn open_loop(b: &Bench) {
    let port = start_service(b);
    let words = ["--connections", "64", "--seconds", if b.quick { "0.2" } else { "1" }];
    run_load(b, "open", port, &load_words(b, &words));
}
