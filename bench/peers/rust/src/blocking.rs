//! Calls that block their thread. Twin: bench/blocking_bench.cpp.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::measure::ns;
use crate::{join, Bench, Workload, THREADS_STARTED};

pub const WORKLOADS: &[Workload] = &[("blocking-1ms", blocking_1ms)];

/// A thousand tasks block for 1 ms, once. The first of the process: the threads have to be made.
fn blocking_1ms(b: &Bench) {
    let tasks = b.scaled(1000);
    let took = b.run(async move {
        let start = Instant::now();
        let block = || thread::sleep(Duration::from_millis(1));
        join((0..tasks).map(|_| tokio::task::spawn_blocking(block)).collect()).await;
        start.elapsed()
    });
    b.add("time", ns(took) / 1e6, "ms");
    b.add("threads", THREADS_STARTED.load(Ordering::Relaxed) as f64, "threads");
}
