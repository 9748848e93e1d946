//! Sockets and pipes. Twin: bench/net_bench.cpp. The load is bench/load's, in a process of its own.

use std::io;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::measure::{ns, percentile, SplitMix64};
use crate::{fail, Bench, Workload};

pub const WORKLOADS: &[Workload] = &[
    ("echo-64", |b| echo(b, "echo", "64")),
    ("echo-1000", |b| echo(b, "echo", "1000")),
    ("echo-think", echo_think),
    ("echo-syscalls", echo_syscalls),
    ("echo-10m", echo_10m),
    ("idle-connections", idle_connections),
    ("pipe-wake", pipe_wake),
];

pub fn check<T>(result: io::Result<T>) -> T {
    result.unwrap_or_else(|error| fail(error))
}

/// Runs bench/load's program with these words behind its kind and port, and passes its metrics on.
pub fn run_load(b: &Bench, kind: &str, port: u16, words: &[&str]) {
    let program = std::env::var("DUNLIN_BENCH_LOAD").unwrap_or_else(|_| "build/bench-peers/net_load".to_string());
    let done = Command::new(&program)
        .args([kind, &port.to_string()])
        .args(words)
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| fail(format_args!("{program}: {error}")));
    if !done.status.success() {
        fail(format_args!("the load has failed: {}", done.status));
    }
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [metric, value, unit] => b.add(metric, value.parse().unwrap_or_else(|_| fail(line)), unit),
            _ => fail(line),
        }
    }
}

// ---- echo --------------------------------------------------------------------------------------------------------------

async fn echo_one(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?; // as Go does for each
    let mut buffer = [0; 1024];
    loop {
        match connection.read(&mut buffer).await? {
            0 => return Ok(()),
            n => connection.write_all(&buffer[..n]).await?,
        }
    }
}

/// As many descriptors as we are allowed.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// On a free port.
pub fn listen(b: &Bench) -> (TcpListener, u16) {
    let listener = check(b.runtime.block_on(TcpListener::bind("127.0.0.1:0")));
    let port = check(listener.local_addr()).port();
    (listener, port)
}

/// Accepts connections and sends back what comes in, a task for each, while the load runs.
fn echo_under(b: &Bench, kind: &str, words: &[&str]) {
    raise_descriptor_limit();
    let (listener, port) = listen(b);
    b.runtime.spawn(async move {
        loop {
            let (connection, _) = check(listener.accept().await);
            tokio::spawn(async move { check(echo_one(connection).await) });
        }
    });
    run_load(b, kind, port, words);
}

fn echo(b: &Bench, kind: &str, connections: &str) {
    let words = ["--connections", connections, "--seconds", if b.quick { "0.1" } else { "1" }, "--free"];
    // Several workers on one CPU would never run at once.
    echo_under(b, kind, if b.procs > 1 { &words } else { &words[..4] });
}

fn echo_think(b: &Bench) {
    echo(b, "think", &b.scaled(10_000).to_string());
}

fn echo_syscalls(b: &Bench) {
    echo_under(b, "echo", &["--calls", "--requests", &b.scaled(20_000).to_string()]);
}

fn echo_10m(b: &Bench) {
    let requests = b.scaled(10_000_000).to_string();
    let words = ["--requests", &requests, "--free"];
    echo_under(b, "echo", if b.procs > 1 { &words } else { &words[..2] });
}

fn idle_connections(b: &Bench) {
    echo_under(b, "idle", &["--connections", &b.scaled(20_000).to_string()]);
}

// ---- pipes -------------------------------------------------------------------------------------------------------------

fn open_pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
            fail("pipe-wake: no pipe");
        }
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

fn read_byte(from: &OwnedFd) -> io::Result<bool> {
    let mut byte = 0u8;
    match unsafe { libc::read(from.as_raw_fd(), &mut byte as *mut u8 as *mut libc::c_void, 1) } {
        n if n < 0 => Err(io::Error::last_os_error()),
        n => Ok(n == 1),
    }
}

fn write_byte(to: &OwnedFd) {
    let byte = 0u8;
    if unsafe { libc::write(to.as_raw_fd(), &byte as *const u8 as *const libc::c_void, 1) } != 1 {
        fail("pipe-wake: the pipe is full");
    }
}

/// A plain thread writes to a pipe that a task reads, both having slept.
fn pipe_wake(b: &Bench) {
    let (reading_end, writing_end) = open_pipe();
    let origin = Instant::now();
    let ran_at_ns = Arc::new(AtomicU64::new(0));
    let noted = ran_at_ns.clone();
    let reading = b.runtime.spawn(async move {
        let pipe = check(AsyncFd::new(reading_end));
        loop {
            let mut ready = check(pipe.readable().await);
            match ready.try_io(|fd| read_byte(fd.get_ref())) {
                Ok(Ok(true)) => noted.store(origin.elapsed().as_nanos() as u64, Ordering::SeqCst),
                Ok(Ok(false)) => break,
                Ok(Err(error)) => fail(error),
                Err(_would_block) => {}
            }
        }
    });
    let mut random = SplitMix64(1);
    let mut delays_us = Vec::new();
    for _ in 0..b.scaled(1000) {
        thread::sleep(Duration::from_micros(200 + random.next() % 800));
        ran_at_ns.store(0, Ordering::SeqCst);
        let written_at = origin.elapsed();
        write_byte(&writing_end);
        while ran_at_ns.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_micros(100));
        }
        delays_us.push((ran_at_ns.load(Ordering::SeqCst) as f64 - ns(written_at)) / 1e3);
    }
    drop(writing_end);
    b.runtime.block_on(reading).unwrap();
    b.add("p50", percentile(&mut delays_us, 0.50), "us");
    b.add("p99", percentile(&mut delays_us, 0.99), "us");
}
