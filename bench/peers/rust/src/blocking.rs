//! Calls that block their thread. Twin: bench/blocking_bench.cpp.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::measure::{ns, percentile};
use crate::{join, Bench, Workload, THREADS_STARTED};

pub const WORKLOADS: &[Workload] = &[("blocking-1ms", blocking_1ms)];

/// A thousand tasks block for 1 ms. The first time in the process the threads have to be made; then twenty times more.
fn blocking_1ms(b: &Bench) {
    let tasks = b.scaled(1000);
    let mut took_ms = b.run(async move {
        let mut took_ms = Vec::new();
        for _ in 0..21 {
            let start = Instant::now();
            let block = || thread::sleep(Duration::from_millis(1));
            join((0..tasks).map(|_| tokio::task::spawn_blocking(block)).collect()).await;
            took_ms.push(ns(start.elapsed()) / 1e6);
        }
        took_ms
    });
    b.add("time", took_ms.remove(0), "ms");
    b.add("again", percentile(&mut took_ms, 0.5), "ms");
    b.add("threads", THREADS_STARTED.load(Ordering::Relaxed) as f64, "threads");
}
