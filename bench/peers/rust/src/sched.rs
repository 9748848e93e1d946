//! What the scheduler's own steps cost: yield, spawn, join, wake. Twin: bench/sched_bench.cpp.

use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::measure::{ns, ns_per_operation, percentile, status_bytes};
use crate::net::check;
use crate::{expect, fail, join, Bench, Workload};

pub const WORKLOADS: &[Workload] = &[
    ("yield", |b| yield_among(b, 2, b.scaled(100_000))),
    ("yield1000", |b| yield_among(b, 1000, b.scaled(500))),
    ("spawn-join", spawn_join),
    ("spawn-join-wg", spawn_join), // a task is its own wait group
    ("spawn-million", spawn_million),
    ("spawn-million-current-thread P=1", spawn_million_current_thread),
    ("spawn-million-lightest", |b| if b.procs == 1 { spawn_million_current_thread(b) } else { spawn_million(b) }),
    ("start-up P=1", start_up),
    ("spawn-million-handles", spawn_million_handles),
    ("spawn-million-set", spawn_million_set),
    ("wake-idle", wake_idle),
];

fn yield_among(b: &Bench, tasks: u64, yields: u64) {
    let time = b.run(ns_per_operation(tasks * yields, move || async move {
        let yielding = || async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
        };
        join((0..tasks).map(|_| tokio::spawn(yielding())).collect()).await;
    }));
    b.add("time", time, "ns");
}

fn spawn_join(b: &Bench) {
    let rounds = b.scaled(100_000);
    let time = b.run(ns_per_operation(rounds, move || async move {
        let mut sum = 0;
        for _ in 0..rounds {
            sum += tokio::spawn(async { 1 }).await.unwrap();
        }
        expect("spawn-join", sum, rounds);
    }));
    b.add("time", time, "ns");
}

/// A wait group as one has it in Tokio: each task has a sender of a channel, which is closed when the last of them is gone.
fn spawn_million(b: &Bench) {
    spawn_million_as(b, |tasks| async move {
        let (alive, mut all_gone) = mpsc::channel::<()>(1);
        for _ in 0..tasks {
            let alive = alive.clone();
            tokio::spawn(async move { drop(alive) });
        }
        drop(alive);
        all_gone.recv().await;
    });
}

/// On the runtime that has no other thread: nothing is shared or stolen.
fn spawn_million_current_thread(b: &Bench) {
    let runtime = Builder::new_current_thread().build().unwrap_or_else(|error| fail(error));
    let tasks = b.scaled(1_000_000);
    let batch = move || async move {
        let (alive, mut all_gone) = mpsc::channel::<()>(1);
        for _ in 0..tasks {
            let alive = alive.clone();
            tokio::spawn(async move { drop(alive) });
        }
        drop(alive);
        all_gone.recv().await;
    };
    let (first, time) = runtime.block_on(async move {
        let start = Instant::now();
        batch().await;
        (ns(start.elapsed()) / tasks as f64, ns_per_operation(tasks, batch).await)
    });
    add_spawn_million(b, first, time);
}

fn spawn_million_handles(b: &Bench) {
    spawn_million_as(b, |tasks| async move {
        join((0..tasks).map(|_| tokio::spawn(async {})).collect()).await;
    });
}

fn spawn_million_set(b: &Bench) {
    spawn_million_as(b, |tasks| async move {
        let mut set = JoinSet::new();
        for _ in 0..tasks {
            set.spawn(async {});
        }
        while set.join_next().await.is_some() {}
    });
}

fn spawn_million_as<F, Batch>(b: &Bench, batch: F)
where
    F: Fn(u64) -> Batch + Copy + Send + Sync + 'static,
    Batch: Future<Output = ()> + Send,
{
    let tasks = b.scaled(1_000_000);
    let (first, time) = b.run(async move {
        let start = Instant::now();
        batch(tasks).await;
        let first = ns(start.elapsed()) / tasks as f64;
        (first, ns_per_operation(tasks, move || batch(tasks)).await)
    });
    add_spawn_million(b, first, time);
}

fn add_spawn_million(b: &Bench, first: f64, time: f64) {
    b.add("time", time, "ns");
    b.add("first", first, "ns"); // nothing allocated yet: what a program that does this once pays
    b.add("peak-rss", status_bytes("VmHWM") / 1e6, "MB");
}

/// A plain thread sleeps, so that the runtime is idle, and then starts one task.
fn wake_idle(b: &Bench) {
    let mut delays_us = Vec::new();
    for _ in 0..b.scaled(500) {
        thread::sleep(Duration::from_millis(1));
        let asked_at = Instant::now();
        let task = b.runtime.spawn(async { Instant::now() });
        // Sleeping and not spinning, so that the task's thread finds a free CPU also on a small machine.
        while !task.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let ran_at = b.runtime.block_on(task).unwrap();
        delays_us.push(ns(ran_at - asked_at) / 1e3);
    }
    b.add("p50", percentile(&mut delays_us, 0.50), "us");
    b.add("p99", percentile(&mut delays_us, 0.99), "us");
}

/// Starts the program that only makes a runtime and runs an empty task, again and again: the time until it has ended.
fn start_up(b: &Bench) {
    let program = check(std::env::current_exe()).with_file_name("rust_empty");
    let run_us = |program: &Path| {
        let start = Instant::now();
        match Command::new(program).status() {
            Ok(status) if status.success() => ns(start.elapsed()) / 1e3,
            other => fail(format_args!("start-up: {}: {other:?}", program.display())),
        }
    };
    run_us(&program); // from now on the file is in memory
    let mut lives_us: Vec<f64> = (0..b.scaled(300)).map(|_| run_us(&program)).collect();
    b.add("time", percentile(&mut lives_us, 0.5), "us");
    b.add("size", check(std::fs::metadata(&program)).len() as f64 / 1e3, "kB");
}
