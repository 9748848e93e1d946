//! What a task that waits costs in memory. Twin: bench/memory_bench.cpp.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, Notify};

use crate::measure::{ns, ns_per_operation, status_bytes, SplitMix64};
use crate::{expect, join, Bench, Workload};

pub const WORKLOADS: &[Workload] = &[
    ("parked-memory", parked_memory),
    ("alloc-churn", alloc_churn),
    ("live-stack-1", live_stack::<1>),
    ("live-stack-4", live_stack::<4>),
    ("live-stack-16", live_stack::<16>),
    ("live-stack-64", live_stack::<64>),
];

#[derive(Default)]
struct Shared {
    parked: AtomicU64,
    gate: Notify,
}

fn parked_memory(b: &Bench) {
    let tasks = b.scaled(1_000_000);
    let (resident, tables, created, ended) = b.run(async move {
        let shared = Arc::new(Shared::default());
        let rss_before = status_bytes("VmRSS");
        let tables_before = status_bytes("VmPTE");
        let start = Instant::now();
        let park = |shared: Arc<Shared>| async move {
            let opened = shared.gate.notified(); // before it counts itself, so that it cannot miss the opening
            shared.parked.fetch_add(1, Ordering::Relaxed);
            opened.await;
        };
        let all = (0..tasks).map(|_| tokio::spawn(park(shared.clone()))).collect();
        while shared.parked.load(Ordering::Relaxed) < tasks {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let created = start.elapsed();
        tokio::time::sleep(Duration::from_millis(20)).await; // those that have counted themselves but do not wait yet
        let resident = status_bytes("VmRSS") - rss_before;
        let tables = status_bytes("VmPTE") - tables_before;

        let start = Instant::now();
        shared.gate.notify_waiters();
        join(all).await;
        (resident, tables, created, start.elapsed())
    });
    let each = |total: f64| total / tasks as f64;
    b.add("memory", each(resident + tables), "B");
    b.add("resident", each(resident), "B");
    b.add("page-tables", each(tables), "B");
    b.add("create", each(ns(created)), "ns");
    b.add("end", each(ns(ended)), "ns");
}

const CHURN_MIN: u64 = 64;
const CHURN_MAX: u64 = 4096;
const CHURN_CAPACITY: usize = 128;

fn churn_size(random: &mut SplitMix64) -> usize {
    (CHURN_MIN + random.next() % (CHURN_MAX - CHURN_MIN + 1)) as usize
}

/// One task allocates values, another one frees them.
fn alloc_churn(b: &Bench) {
    let values = b.scaled(200_000);
    let pattern: Arc<Vec<u8>> = Arc::new((0..CHURN_MAX).map(|i| (i * 31) as u8).collect());
    let weigh = |value: &[u8]| value.len() as u64 + *value.last().unwrap() as u64;
    let mut random = SplitMix64(1);
    let expected = (0..values).map(|_| weigh(&pattern[..churn_size(&mut random)])).sum();
    let time = b.run(ns_per_operation(values, move || {
        let pattern = pattern.clone();
        async move {
            let (sender, mut receiver) = mpsc::channel(CHURN_CAPACITY);
            tokio::spawn(async move {
                let mut random = SplitMix64(1);
                for _ in 0..values {
                    sender.send(pattern[..churn_size(&mut random)].to_vec()).await.unwrap();
                }
            });
            let mut sum = 0;
            while let Some(value) = receiver.recv().await {
                sum += weigh(&value);
            }
            expect("alloc-churn", sum, expected);
        }
    }));
    b.add("time", time, "ns");
    b.add("peak-rss", status_bytes("VmHWM") / 1e6, "MB");
}

/// Ten thousand tasks whose state holds so many KiB where they wait: a task has no stack, what it needs afterwards is part
/// of it.
fn live_stack<const KIB: usize>(b: &Bench) {
    const ROUNDS: u64 = 20;
    let tasks = b.scaled(10_000);
    let (memory, switch, sums) = b.run(async move {
        let shared = Arc::new(Shared::default());
        let before = status_bytes("VmRSS") + status_bytes("VmPTE");
        let hold = |shared: Arc<Shared>| async move {
            let opened = shared.gate.notified(); // before it counts itself, so that it cannot miss the opening
            let mut frames = [[0u8; 1024]; KIB];
            for (i, frame) in frames.iter_mut().enumerate() {
                frame.iter_mut().step_by(64).for_each(|byte| unsafe { std::ptr::write_volatile(byte, (i + 1) as u8) });
            }
            shared.parked.fetch_add(1, Ordering::Relaxed);
            opened.await;
            for _ in 0..ROUNDS {
                tokio::task::yield_now().await;
            }
            frames.iter().map(|frame| unsafe { std::ptr::read_volatile(&frame[0]) } as u64).sum::<u64>()
        };
        let all = (0..tasks).map(|_| tokio::spawn(hold(shared.clone()))).collect();
        while shared.parked.load(Ordering::Relaxed) < tasks {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // those that have counted themselves but do not wait yet
        let memory = status_bytes("VmRSS") + status_bytes("VmPTE") - before;
        let start = Instant::now();
        shared.gate.notify_waiters();
        let sums: u64 = join(all).await.into_iter().sum();
        (memory, ns(start.elapsed()) / (tasks * ROUNDS) as f64, sums)
    });
    let kib = KIB as u64;
    expect("live-stack", sums, tasks * (kib * (kib + 1) / 2));
    b.add("memory", memory / tasks as f64, "B");
    b.add("switch", switch, "ns");
}
