//! Who gets the CPU while tasks compute without a call, and what an idle process uses of it. Twin: bench/hogs_bench.cpp.
//!
//! Tokio does not interrupt a task: one that awaits nothing keeps its worker. With as many of them as there are workers,
//! no other task runs until one ends, timers included, so the clock that ends a measurement is a plain thread's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Barrier, Notify};
use tokio::task::{yield_now, JoinHandle};

use crate::measure::{cpu_seconds, ns, percentile};
use crate::{join, Bench, Workload};

pub const WORKLOADS: &[Workload] =
    &[("hogs-wake", hogs_wake), ("hogs-fair", hogs_fair), ("hogs-throughput", hogs_throughput), ("idle-cpu", idle_cpu)];

/// About a tenth of a millisecond without a call. Each step needs the one before; the compiler is not told the factor, with
/// which it could make one step of several.
fn work_unit(mut x: u64, factor: u64) -> u64 {
    for _ in 0..100_000 {
        x = x.wrapping_mul(factor).wrapping_add(1442695040888963407);
    }
    x
}

/// One task's work. A cache line each, so that counting disturbs no other.
#[repr(align(64))]
struct Worker {
    units: AtomicU64,
    value: AtomicU64, // kept, so that the work is not in vain
    factor: AtomicU64,
}

impl Worker {
    fn several(n: usize) -> Vec<Arc<Worker>> {
        let one =
            || Worker { units: AtomicU64::new(0), value: AtomicU64::new(1), factor: AtomicU64::new(6364136223846793005) };
        (0..n).map(|_| Arc::new(one())).collect()
    }

    fn work(&self) {
        self.value.store(work_unit(self.value.load(Relaxed), self.factor.load(Relaxed)), Relaxed);
        self.units.store(self.units.load(Relaxed) + 1, Relaxed);
    }

    fn work_until(&self, stop: &AtomicBool) {
        while !stop.load(Relaxed) {
            self.work();
        }
    }
}

fn units_of(workers: &[Arc<Worker>]) -> f64 {
    workers.iter().map(|w| w.units.load(Relaxed)).sum::<u64>() as f64
}

fn mean_units(workers: &[Arc<Worker>]) -> f64 {
    units_of(workers) / workers.len() as f64
}

fn start_hogs(hogs: &[Arc<Worker>], stop: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let start = |(hog, stop): (Arc<Worker>, Arc<AtomicBool>)| tokio::spawn(async move { hog.work_until(&stop) });
    hogs.iter().map(|hog| start((hog.clone(), stop.clone()))).collect()
}

/// Two hogs for each worker, and a task that sleeps for 1 ms again and again: how much later it runs. It does when the hogs
/// have ended: what is printed is the time that they were given.
fn hogs_wake(b: &Bench) {
    const ASKED: Duration = Duration::from_millis(1);
    let length = Duration::from_millis(b.scaled(2000));
    let hogs = Worker::several(2 * b.procs);
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = thread::spawn({
        let stop = stop.clone();
        move || {
            thread::sleep(length);
            stop.store(true, Relaxed);
        }
    });
    let mut delays_ms = b.run(async move {
        let running = start_hogs(&hogs, &stop);
        let start = Instant::now();
        let mut delays_ms = Vec::new();
        while start.elapsed() < length {
            let asleep_at = Instant::now();
            tokio::time::sleep(ASKED).await;
            delays_ms.push((ns(asleep_at.elapsed()) - ns(ASKED)) / 1e6);
        }
        join(running).await;
        delays_ms
    });
    stopping.join().unwrap();
    b.add("p50", percentile(&mut delays_ms, 0.50), "ms");
    b.add("p99", percentile(&mut delays_ms, 0.99), "ms");
}

/// Four hogs for each worker with the same work, and, until the first has finished, two tasks that yield after each unit.
fn hogs_fair(b: &Bench) {
    let units_each = b.scaled(4000);
    let hogs = Worker::several(4 * b.procs);
    let yielders = Worker::several(2);
    let (mut finished, yielders_part) = b.run(async move {
        let gate = Arc::new(Barrier::new(hogs.len() + yielders.len() + 1));
        let one_finished = Arc::new(AtomicBool::new(false));
        let mut yielding = Vec::new();
        for w in yielders.clone() {
            let (gate, one_finished) = (gate.clone(), one_finished.clone());
            yielding.push(tokio::spawn(async move {
                gate.wait().await;
                while !one_finished.load(Relaxed) {
                    w.work();
                    yield_now().await;
                }
            }));
        }
        let mut running = Vec::new();
        for w in hogs.clone() {
            let (gate, one_finished) = (gate.clone(), one_finished.clone());
            let (hogs, yielders) = (hogs.clone(), yielders.clone());
            running.push(tokio::spawn(async move {
                gate.wait().await;
                for _ in 0..units_each {
                    w.work();
                }
                let finished_at = Instant::now();
                let is_first = !one_finished.swap(true, Relaxed);
                (finished_at, is_first.then(|| mean_units(&hogs) / mean_units(&yielders).max(0.5)))
            }));
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // all wait at the gate
        let start = Instant::now();
        gate.wait().await;
        let ends = join(running).await;
        join(yielding).await;
        let finished: Vec<f64> = ends.iter().map(|(at, _)| ns(*at - start)).collect();
        (finished, ends.into_iter().find_map(|(_, part)| part).unwrap())
    });
    let last = percentile(&mut finished, 1.0);
    b.add("spread", (last - percentile(&mut finished, 0.0)) / last * 100.0, "%");
    b.add("yielders", yielders_part, "x");
}

/// Two hogs for each worker and nothing else. `relative` is dunlin's alone.
fn hogs_throughput(b: &Bench) {
    let length = Duration::from_millis(b.scaled(1000));
    let mut samples_us = Vec::new();
    for _ in 0..2 {
        let hogs = Worker::several(2 * b.procs);
        let stop = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let inside = b.runtime.enter();
        let running = start_hogs(&hogs, &stop);
        drop(inside);
        thread::sleep(length);
        let units = units_of(&hogs);
        let took = start.elapsed();
        stop.store(true, Relaxed);
        b.runtime.block_on(join(running));
        samples_us.push(ns(took) / units / 1e3);
    }
    b.add("time", percentile(&mut samples_us, 0.5), "us");
}

/// 10,000 tasks wait and nothing happens.
fn idle_cpu(b: &Bench) {
    let tasks = b.scaled(10_000);
    let length = Duration::from_millis(b.scaled(10_000));
    let cpu = b.run(async move {
        let gate = Arc::new(Notify::new());
        let wait = |gate: Arc<Notify>| async move { gate.notified().await };
        let all = (0..tasks).map(|_| tokio::spawn(wait(gate.clone()))).collect();
        tokio::time::sleep(Duration::from_millis(200)).await; // until all wait, and the threads have gone to sleep
        let (cpu_before, start) = (cpu_seconds(), Instant::now());
        tokio::time::sleep(length).await;
        let cpu = (cpu_seconds() - cpu_before) * 1e9 / ns(start.elapsed()) * 100.0;
        gate.notify_waiters();
        join(all).await;
        cpu
    });
    b.add("cpu", cpu, "%");
}
