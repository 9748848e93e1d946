//! The Tokio twins of dunlin's benchmarks: `rust_bench NAME [--procs N] [--quick]`, `rust_bench --list`.
//!
//! Each metric of the workload is printed as one line of JSON, in the form of bench/registry.h. A file holds the workloads
//! of one subject. What Tokio cannot do (a task that computes is not interrupted) is measured like everything else.

#![allow(clippy::manual_async_fn)] // a task that starts tasks of its own kind cannot be an async fn: see forkjoin.rs

mod blocking;
mod chan;
mod forkjoin;
mod hogs;
#[cfg(feature = "hyper")]
mod http;
mod measure;
mod memory;
mod net;
mod sched;
mod service;
mod sync;
mod timer;
mod work;

use std::fmt::Display;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// One run of one workload: what the command line says, the runtime that it gets, and where its results go.
pub struct Bench {
    workload: &'static str,
    pub procs: usize,
    pub quick: bool,
    pub runtime: Runtime,
}

/// How many threads the runtime has started: workers and those of spawn_blocking.
pub static THREADS_STARTED: AtomicUsize = AtomicUsize::new(0);

impl Bench {
    fn new(workload: &'static str, procs: usize, quick: bool) -> Bench {
        let runtime = Builder::new_multi_thread()
            .worker_threads(procs)
            .enable_all()
            .on_thread_start(|| {
                THREADS_STARTED.fetch_add(1, Ordering::Relaxed);
            })
            .build()
            .unwrap_or_else(|error| fail(format_args!("no runtime: {error}")));
        Bench { workload, procs, quick, runtime }
    }

    /// `full`, or a tenth of it in a quick run (whose figures are for trying things out, not for quoting).
    pub fn scaled(&self, full: u64) -> u64 {
        if self.quick {
            full / 10
        } else {
            full
        }
    }

    /// Runs a future as a task. Directly in `block_on` it would run on the main thread, which is none of the workers, and
    /// whatever it starts or waits for would have to change threads.
    pub fn run<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.runtime.block_on(async { tokio::spawn(future).await.unwrap() })
    }

    pub fn add(&self, metric: &str, value: f64, unit: &str) {
        println!(
            r#"{{"workload":"{}","metric":"{metric}","peer":"tokio","procs":{},"value":{value},"unit":"{unit}"}}"#,
            self.workload, self.procs
        );
    }
}

/// Waits for all of them, in their order.
pub async fn join<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

/// Ends the program with a message: a workload whose answer is wrong has measured nothing.
pub fn fail(text: impl Display) -> ! {
    eprintln!("rust_bench: {text}");
    std::process::exit(1);
}

pub fn expect(what: &str, got: u64, expected: u64) {
    if got != expected {
        fail(format_args!("{what}: {got}, expected {expected}"));
    }
}

/// The name, with " P=1" behind it if it is for one processor only.
type Workload = (&'static str, fn(&Bench));

fn workloads() -> Vec<Workload> {
    let mut all = [
        blocking::WORKLOADS,
        chan::WORKLOADS,
        forkjoin::WORKLOADS,
        hogs::WORKLOADS,
        memory::WORKLOADS,
        #[cfg(feature = "hyper")]
        http::WORKLOADS,
        net::WORKLOADS,
        sched::WORKLOADS,
        service::WORKLOADS,
        sync::WORKLOADS,
        timer::WORKLOADS,
        work::WORKLOADS,
    ]
    .concat();
    all.sort_by_key(|(name, _)| *name);
    all
}

fn main() {
    let mut wanted = None;
    let mut procs = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut quick = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => {
                for (name, _) in workloads() {
                    println!("{name}");
                }
                return;
            }
            "--quick" => quick = true,
            "--procs" => match arguments.next().and_then(|n| n.parse().ok()) {
                Some(n) if n > 0 => procs = n,
                _ => fail("--procs wants a number of processors"),
            },
            _ if wanted.is_none() && !argument.starts_with('-') => wanted = Some(argument),
            _ => fail(format_args!("{argument}: not understood; usage: rust_bench NAME [--procs N] [--quick] | --list")),
        }
    }
    let wanted = wanted.unwrap_or_default();
    let mut known = workloads().into_iter().map(|(listed, run)| (listed.trim_end_matches(" P=1"), listed, run));
    match known.find(|(name, _, _)| *name == wanted) {
        Some((name, listed, _)) if listed != name && procs != 1 => fail(format_args!("{name}: with one processor only")),
        Some((name, _, run)) => run(&Bench::new(name, procs, quick)),
        None => fail(format_args!("no workload {wanted:?}; --list prints them")),
    }
}
