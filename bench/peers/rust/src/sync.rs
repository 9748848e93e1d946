//! Locks. Twin: bench/sync_bench.cpp.
//!
//! Tokio's own mutex, at which a task waits and its thread does not, as in Go. Tokio recommends std's or that of parking_lot,
//! at which the thread waits, where no task awaits anything under the lock: `mutex-std`, `mutex-parking-lot` and so on.

use std::sync::Arc;

use crate::measure::ns_per_operation;
use crate::{expect, join, Bench, Workload};

pub const WORKLOADS: &[Workload] = &[
    ("mutex", |b| count_under_lock(b, 1)),
    ("mutex-8", |b| count_under_lock(b, 8)),
    ("mutex-std", |b| count_under_std_lock(b, 1)),
    ("mutex-8-std", |b| count_under_std_lock(b, 8)),
    ("mutex-parking-lot", |b| count_under_parking_lot(b, 1)),
    ("mutex-8-parking-lot", |b| count_under_parking_lot(b, 8)),
];

/// So many tasks lock, count and unlock, a million times together.
fn count_under_lock(b: &Bench, tasks: u64) {
    let each = b.scaled(1_000_000) / tasks;
    let time = b.run(ns_per_operation(tasks * each, move || async move {
        let counter = Arc::new(tokio::sync::Mutex::new(0));
        let count = |counter: Arc<tokio::sync::Mutex<u64>>| async move {
            for _ in 0..each {
                *counter.lock().await += 1;
            }
        };
        join((0..tasks).map(|_| tokio::spawn(count(counter.clone()))).collect()).await;
        expect("mutex", *counter.lock().await, tasks * each);
    }));
    b.add("time", time, "ns");
}

fn count_under_std_lock(b: &Bench, tasks: u64) {
    let each = b.scaled(1_000_000) / tasks;
    let time = b.run(ns_per_operation(tasks * each, move || async move {
        let counter = Arc::new(std::sync::Mutex::new(0));
        let count = |counter: Arc<std::sync::Mutex<u64>>| async move {
            for _ in 0..each {
                *counter.lock().unwrap() += 1;
            }
        };
        join((0..tasks).map(|_| tokio::spawn(count(counter.clone()))).collect()).await;
        expect("mutex-std", *counter.lock().unwrap(), tasks * each);
    }));
    b.add("time", time, "ns");
}

fn count_under_parking_lot(b: &Bench, tasks: u64) {
    let each = b.scaled(1_000_000) / tasks;
    let time = b.run(ns_per_operation(tasks * each, move || async move {
        let counter = Arc::new(parking_lot::Mutex::new(0));
        let count = |counter: Arc<parking_lot::Mutex<u64>>| async move {
            for _ in 0..each {
                *counter.lock() += 1;
            }
        };
        join((0..tasks).map(|_| tokio::spawn(count(counter.clone()))).collect()).await;
        expect("mutex-parking-lot", *counter.lock(), tasks * each);
    }));
    b.add("time", time, "ns");
}
