//! How many sleepers, and how late they wake. Twin: bench/timer_bench.cpp.

use std::future::ready;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::time::{sleep, Sleep};

use crate::measure::{cpu_seconds, ns, ns_per_operation, percentile, SplitMix64};
use crate::{fail, join, Bench, Workload};

pub const WORKLOADS: &[Workload] = &[
    ("sleepers", |b| sleep_together(b, b.scaled(100_000))),
    ("sleepers-million", |b| sleep_together(b, b.scaled(1_000_000))),
    ("sleep-overshoot", sleep_overshoot),
    ("deadlines", deadlines),
];

/// Tasks sleep for 0 to 1000 ms; the ideal end is 1000 ms after the start.
fn sleep_together(b: &Bench, tasks: u64) {
    let (took, cpu) = b.run(async move {
        let mut random = SplitMix64(1);
        let (cpu_before, start) = (cpu_seconds(), Instant::now());
        let all = (0..tasks)
            .map(|_| {
                let d = Duration::from_nanos(random.next() % 1_000_000_000);
                tokio::spawn(sleep(d))
            })
            .collect();
        join(all).await;
        (start.elapsed(), cpu_seconds() - cpu_before)
    });
    b.add("late", (ns(took) - 1e9) / 1e6, "ms");
    b.add("cpu", cpu, "s");
}

/// Tokio counts in milliseconds.
fn sleep_overshoot(b: &Bench) {
    const ASKED: Duration = Duration::from_micros(100);
    let rounds = b.scaled(1000);
    let mut overshoot_us = b.run(async move {
        let mut overshoot_us = Vec::new();
        for _ in 0..rounds {
            let start = Instant::now();
            sleep(ASKED).await;
            overshoot_us.push((ns(start.elapsed()) - ns(ASKED)) / 1e3);
        }
        overshoot_us
    });
    b.add("p50", percentile(&mut overshoot_us, 0.50), "us");
    b.add("p99", percentile(&mut overshoot_us, 0.99), "us");
}

/// Every request has a deadline, which is dropped when it is answered; all of them are pending at once. A `Sleep` is entered
/// among the timers when it is waited for the first time, as by `timeout` or `select!`.
async fn deadlines_ns(requests: u64, asked: bool) -> f64 {
    ns_per_operation(requests, move || async move {
        let mut pending: Vec<Pin<Box<Sleep>>> = Vec::with_capacity(requests as usize);
        for _ in 0..requests {
            pending.push(Box::pin(sleep(Duration::from_secs(30))));
            if asked {
                let last = pending.last_mut().unwrap();
                tokio::select! {
                    biased;
                    _ = last => fail("deadlines: one is over already"),
                    _ = ready(()) => {}
                }
            }
        }
        drop(pending);
    })
    .await
}

fn deadlines(b: &Bench) {
    let requests = b.scaled(100_000);
    let (time, unasked) = b.run(async move { (deadlines_ns(requests, true).await, deadlines_ns(requests, false).await) });
    b.add("time", time, "ns");
    b.add("unasked", unasked, "ns");
}
