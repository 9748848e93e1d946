//! Work of a known length between hand-overs, in the shapes of programs. Twin: bench/work_bench.cpp.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, Semaphore};

use crate::measure::{ns, ns_per_operation};
use crate::{expect, join, Bench, Workload};

pub const WORKLOADS: &[Workload] =
    &[("tree", tree), ("bounded-pool", bounded_pool), ("actors", actors), ("scatter", scatter)];

static FACTOR: u64 = 6364136223846793005;

/// Computes without a call. Each step needs the one before; the compiler is not told the factor, with which it makes one
/// step of several.
pub fn compute(mut x: u64, steps: u64) -> u64 {
    let factor = unsafe { std::ptr::read_volatile(&FACTOR) };
    for _ in 0..steps {
        x = x.wrapping_mul(factor).wrapping_add(1442695040888963407);
    }
    x
}

/// What compute() returns, in as many squarings as the number of steps has digits.
fn computed(mut x: u64, mut steps: u64) -> u64 {
    let (mut factor, mut term) = (6364136223846793005u64, 1442695040888963407u64);
    while steps != 0 {
        if steps & 1 != 0 {
            x = x.wrapping_mul(factor).wrapping_add(term);
        }
        term = term.wrapping_mul(factor.wrapping_add(1));
        factor = factor.wrapping_mul(factor);
        steps >>= 1;
    }
    x
}

/// How many steps take so many microseconds: the best of many tries.
fn steps_of(us: f64) -> u64 {
    const STEPS: u64 = 200_000;
    let mut x = 1;
    let mut best_ns = f64::INFINITY;
    for _ in 0..100 {
        let start = Instant::now();
        x = compute(x, STEPS);
        best_ns = best_ns.min(ns(start.elapsed()));
    }
    expect("work", x, computed(1, 100 * STEPS));
    (us * STEPS as f64 * 1e3 / best_ns) as u64
}

/// How many requests take about 30 ms; fewer when the run is quick.
fn requests_of(b: &Bench, ideal_us: f64) -> u64 {
    b.scaled((30_000.0 / ideal_us) as u64).max(2)
}

/// The processors that there can be CPUs for.
fn processors(b: &Bench) -> f64 {
    b.procs.min(std::thread::available_parallelism().map_or(1, |n| n.get())) as f64
}

fn report(b: &Bench, time_ns: f64, ideal_us: f64) {
    b.add("time", time_ns / 1e3, "us");
    b.add("of-ideal", time_ns / 1e3 / ideal_us, "x");
}

// ---- a tree of workers -------------------------------------------------------------------------------------------------

type TreeJob = (u64, u64); // number, leaves

/// A worker of the tree, which lives on: splits each job in two for those below, or does it if it is a leaf's. Of a channel
/// there is one receiver, so each of those below has its own.
fn tree_worker(
    steps: u64,
    mut jobs: mpsc::Receiver<TreeJob>,
    answers: mpsc::Sender<u64>,
    leaves: u64,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if leaves == 1 {
            while let Some((number, _)) = jobs.recv().await {
                answers.send(compute(number, steps)).await.unwrap();
            }
            return;
        }
        let (half, mut halves) = mpsc::channel(1);
        let below: Vec<_> = (0..2)
            .map(|_| {
                let (job, jobs) = mpsc::channel(1);
                tokio::spawn(tree_worker(steps, jobs, half.clone(), leaves / 2));
                job
            })
            .collect();
        while let Some((number, leaves)) = jobs.recv().await {
            below[0].send((number, leaves / 2)).await.unwrap();
            below[1].send((number + leaves / 2, leaves / 2)).await.unwrap();
            let first = halves.recv().await.unwrap();
            answers.send(first.wrapping_add(halves.recv().await.unwrap())).await.unwrap();
        }
    })
}

fn tree(b: &Bench) {
    const LEAVES: u64 = 16;
    const US: f64 = 20.0;
    let steps = steps_of(US);
    let expected = (0..LEAVES).fold(0u64, |sum, i| sum.wrapping_add(computed(i, steps)));
    let ideal_us = (US * LEAVES as f64 / processors(b)).max(US);
    let requests = requests_of(b, ideal_us);
    let (job, jobs) = mpsc::channel(1);
    let (answer, answers) = mpsc::channel(1);
    b.runtime.spawn(tree_worker(steps, jobs, answer, LEAVES));
    let answers = Arc::new(tokio::sync::Mutex::new(answers));
    let time = b.run(ns_per_operation(requests, move || {
        let (job, answers) = (job.clone(), answers.clone());
        async move {
            let mut answers = answers.lock().await;
            for _ in 0..requests {
                job.send((0, LEAVES)).await.unwrap();
                expect("tree", answers.recv().await.unwrap(), expected);
            }
        }
    }));
    report(b, time, ideal_us);
}

// ---- a pool with a bound -----------------------------------------------------------------------------------------------

fn bounded_pool(b: &Bench) {
    const JOBS: u64 = 64;
    const AT_ONCE: usize = 4;
    const US: f64 = 20.0;
    let steps = steps_of(US);
    let expected = (0..JOBS).fold(0u64, |sum, i| sum.wrapping_add(computed(i, steps)));
    let total_us = US * JOBS as f64;
    let ideal_us = (total_us / processors(b)).max(total_us / AT_ONCE as f64);
    let requests = requests_of(b, ideal_us);
    let time = b.run(ns_per_operation(requests, move || async move {
        for _ in 0..requests {
            let free_places = Arc::new(Semaphore::new(AT_ONCE));
            let work = |i: u64| {
                let free_places = free_places.clone();
                async move {
                    let _place = free_places.acquire().await.unwrap();
                    compute(i, steps)
                }
            };
            let done = join((0..JOBS).map(|i| tokio::spawn(work(i))).collect()).await;
            expect("bounded-pool", done.into_iter().fold(0, u64::wrapping_add), expected);
        }
    }));
    report(b, time, ideal_us);
}

// ---- actors ------------------------------------------------------------------------------------------------------------

fn actors(b: &Bench) {
    const COUNT: usize = 16;
    const HOPS: u32 = 4;
    const US: f64 = 5.0;
    let steps = steps_of(US);
    let expected = (0..COUNT as u64).fold(0u64, |sum, i| sum.wrapping_add(computed(i, steps * HOPS as u64)));
    let ideal_us = (US * (HOPS as usize * COUNT) as f64 / processors(b)).max(US * HOPS as f64);
    let requests = requests_of(b, ideal_us);
    let (arrived, arrivals) = mpsc::channel::<u64>(1);
    let (mailboxes, inboxes): (Vec<_>, Vec<_>) = (0..COUNT).map(|_| mpsc::channel::<(u64, u32)>(16)).unzip();
    for (i, mut inbox) in inboxes.into_iter().enumerate() {
        let (arrived, next) = (arrived.clone(), mailboxes[(i * 5 + 3) % COUNT].clone());
        b.runtime.spawn(async move {
            while let Some((value, hops)) = inbox.recv().await {
                let value = compute(value, steps);
                if hops > 1 {
                    next.send((value, hops - 1)).await.unwrap();
                } else {
                    arrived.send(value).await.unwrap();
                }
            }
        });
    }
    let arrivals = Arc::new(tokio::sync::Mutex::new(arrivals));
    let time = b.run(ns_per_operation(requests, move || {
        let (mailboxes, arrivals) = (mailboxes.clone(), arrivals.clone());
        async move {
            let mut arrivals = arrivals.lock().await;
            for _ in 0..requests {
                for (i, mailbox) in mailboxes.iter().enumerate() {
                    mailbox.send((i as u64, HOPS)).await.unwrap();
                }
                let mut sum = 0u64;
                for _ in 0..COUNT {
                    sum = sum.wrapping_add(arrivals.recv().await.unwrap());
                }
                expect("actors", sum, expected);
            }
        }
    }));
    report(b, time, ideal_us);
}

// ---- to the slowest of several -----------------------------------------------------------------------------------------

fn scatter(b: &Bench) {
    const WORKERS: usize = 8;
    let (answer, answers) = mpsc::channel(WORKERS);
    let mut requests_to = Vec::new();
    let (mut expected, mut total_us, mut longest_us) = (0u64, 0.0, 0.0);
    for i in 0..WORKERS {
        longest_us = 10.0 * (i + 1) as f64;
        total_us += longest_us;
        let steps = steps_of(longest_us);
        expected = expected.wrapping_add(computed(i as u64, steps));
        let (request, mut requests) = mpsc::channel(1);
        let answer = answer.clone();
        requests_to.push(request);
        b.runtime.spawn(async move {
            while let Some(value) = requests.recv().await {
                answer.send(compute(value, steps)).await.unwrap();
            }
        });
    }
    let ideal_us = f64::max(total_us / processors(b), longest_us);
    let requests = requests_of(b, ideal_us);
    let answers = Arc::new(tokio::sync::Mutex::new(answers));
    let time = b.run(ns_per_operation(requests, move || {
        let (requests_to, answers) = (requests_to.clone(), answers.clone());
        async move {
            let mut answers = answers.lock().await;
            for _ in 0..requests {
                for (i, request) in requests_to.iter().enumerate() {
                    request.send(i as u64).await.unwrap();
                }
                let mut sum = 0u64;
                for _ in 0..WORKERS {
                    sum = sum.wrapping_add(answers.recv().await.unwrap());
                }
                expect("scatter", sum, expected);
            }
        }
    }));
    report(b, time, ideal_us);
}
