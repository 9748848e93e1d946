//! What a task that waits costs in memory. Twin: bench/memory_bench.cpp.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::measure::{ns, status_bytes};
use crate::{join, Bench, Workload};

pub const WORKLOADS: &[Workload] = &[("parked-memory", parked_memory)];

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
