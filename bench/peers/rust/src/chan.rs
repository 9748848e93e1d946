//! Values handed from task to task over channels, and select. Twin: bench/chan_bench.cpp.
//!
//! Tokio has no channel without a buffer: capacity 1, its smallest, stands for it. Its channels have one receiver; where
//! there are several it is async-channel's, which is what programs on Tokio take then.

use std::future::Future;

use tokio::sync::mpsc;

use crate::measure::{ns_per_operation, status_bytes};
use crate::{expect, fail, join, Bench, Workload};

pub const WORKLOADS: &[Workload] = &[
    ("ping-pong", ping_pong),
    ("buffered-1-1", buffered_1_1),
    ("buffered-4-4", buffered_4_4),
    ("select4", |b| select_of_4(b, UNBUFFERED)),
    ("select4-buffered", |b| select_of_4(b, BUFFER)),
    ("ring", ring),
    ("skynet", |b| skynet_channels(b, UNBUFFERED)),
    ("skynet-buffered", |b| skynet_channels(b, 10)),
    ("prime-sieve", prime_sieve),
];

const UNBUFFERED: usize = 1;
const BUFFER: usize = 128;

fn sum_below(n: u64) -> u64 {
    n * (n - 1) / 2
}

fn ping_pong(b: &Bench) {
    let rounds = b.scaled(200_000);
    let time = b.run(ns_per_operation(rounds, move || async move {
        let (request, mut requests) = mpsc::channel(UNBUFFERED);
        let (reply, mut replies) = mpsc::channel(UNBUFFERED);
        tokio::spawn(async move {
            while let Some(n) = requests.recv().await {
                reply.send(n + 1).await.unwrap();
            }
        });
        let mut sum = 0;
        for i in 0..rounds {
            request.send(i).await.unwrap();
            sum += replies.recv().await.unwrap();
        }
        drop(request);
        if replies.recv().await.is_some() {
            fail("ping-pong: a reply too many");
        }
        expect("ping-pong", sum, sum_below(rounds) + rounds);
    }));
    b.add("time", time, "ns");
}

fn buffered_1_1(b: &Bench) {
    let values = b.scaled(1_000_000);
    let time = b.run(ns_per_operation(values, move || async move {
        let (sender, mut receiver) = mpsc::channel(BUFFER);
        tokio::spawn(async move {
            for n in 0..values {
                sender.send(n).await.unwrap();
            }
        });
        let receiving = tokio::spawn(async move {
            let mut sum = 0;
            while let Some(n) = receiver.recv().await {
                sum += n;
            }
            sum
        });
        expect("buffered-1-1", receiving.await.unwrap(), sum_below(values));
    }));
    b.add("time", time, "ns");
}

fn buffered_4_4(b: &Bench) {
    const TASKS: u64 = 4;
    let each = b.scaled(1_000_000) / TASKS;
    let time = b.run(ns_per_operation(TASKS * each, move || async move {
        let (sender, receiver) = async_channel::bounded(BUFFER);
        for _ in 0..TASKS {
            let sender = sender.clone();
            tokio::spawn(async move {
                for n in 0..each {
                    sender.send(n).await.unwrap();
                }
            });
        }
        drop(sender); // closed when the last of theirs is gone
        let receive = |receiver: async_channel::Receiver<u64>| async move {
            let mut sum = 0;
            while let Ok(n) = receiver.recv().await {
                sum += n;
            }
            sum
        };
        let receiving = (0..TASKS).map(|_| tokio::spawn(receive(receiver.clone()))).collect();
        expect("buffered-4-4", join(receiving).await.into_iter().sum(), TASKS * sum_below(each));
    }));
    b.add("time", time, "ns");
}

fn select_of_4(b: &Bench, capacity: usize) {
    let each = b.scaled(200_000) / 4;
    let numbers = move || {
        let (sender, receiver) = mpsc::channel(capacity);
        tokio::spawn(async move {
            for n in 0..each {
                sender.send(n).await.unwrap();
            }
        });
        receiver
    };
    let time = b.run(ns_per_operation(4 * each, move || async move {
        let (mut a, mut b, mut c, mut d) = (numbers(), numbers(), numbers(), numbers());
        let mut sum = 0;
        for _ in 0..4 * each {
            tokio::select! {
                Some(n) = a.recv() => sum += n,
                Some(n) = b.recv() => sum += n,
                Some(n) = c.recv() => sum += n,
                Some(n) = d.recv() => sum += n,
                else => fail("select4: a value is lost"),
            }
        }
        expect("select4", sum, 4 * sum_below(each));
    }));
    b.add("time", time, "ns");
}

/// The "threadring" of the Computer Language Benchmarks Game: a number goes round and loses one at each step.
fn ring(b: &Bench) {
    const LENGTH: u64 = 503;
    const END: u64 = u64::MAX; // goes round once: each has a sender of the next one's channel, so none is closed before

    let hops = b.scaled(200_000);
    let time = b.run(async move {
        let (winner, winners) = mpsc::channel(UNBUFFERED);
        let (start, first) = mpsc::channel(UNBUFFERED);
        let mut members = Vec::new();
        let mut link = Some(first);
        for number in 1..=LENGTH {
            let mut input = link.take().unwrap();
            let output = if number == LENGTH {
                start.clone()
            } else {
                let (output, next) = mpsc::channel(UNBUFFERED);
                link = Some(next);
                output
            };
            let winner = winner.clone();
            members.push(tokio::spawn(async move {
                while let Some(token) = input.recv().await {
                    match token {
                        END => {
                            let _ = output.send(END).await; // the first is gone when the last gets here
                            break;
                        }
                        0 => winner.send(number).await.unwrap(),
                        _ => output.send(token - 1).await.unwrap(),
                    }
                }
            }));
        }
        let winners = tokio::sync::Mutex::new(winners); // only so that every batch may have it; nothing else wants it
        let time = ns_per_operation(hops, || async {
            start.send(hops).await.unwrap();
            expect("ring", winners.lock().await.recv().await.unwrap(), hops % LENGTH + 1);
        })
        .await;
        start.send(END).await.unwrap();
        join(members).await;
        time
    });
    b.add("time", time, "ns");
}

/// As in github.com/atemerev/skynet.
fn skynet(c: mpsc::Sender<u64>, number: u64, size: u64, div: u64, capacity: usize) -> impl Future<Output = ()> + Send {
    async move {
        if size == 1 {
            c.send(number).await.unwrap();
            return;
        }
        let (results, mut values) = mpsc::channel(capacity);
        for i in 0..div {
            tokio::spawn(skynet(results.clone(), number + i * (size / div), size / div, div, capacity));
        }
        let mut sum = 0;
        for _ in 0..div {
            sum += values.recv().await.unwrap();
        }
        c.send(sum).await.unwrap();
    }
}

fn skynet_channels(b: &Bench, capacity: usize) {
    let leaves = b.scaled(1_000_000);
    let time = b.run(ns_per_operation(1, move || async move {
        let (c, mut values) = mpsc::channel(capacity);
        tokio::spawn(skynet(c, 0, leaves, 10, capacity));
        expect("skynet", values.recv().await.unwrap(), sum_below(leaves));
    }));
    b.add("time", time / 1e6, "ms");
    b.add("peak-rss", status_bytes("VmHWM") / 1e6, "MB");
}

/// The sieve of the Go tour, whose generator ends after the last prime that is asked for, so that all end.
fn numbers_from_2_to(last: u64) -> mpsc::Receiver<u64> {
    let (sender, receiver) = mpsc::channel(UNBUFFERED);
    tokio::spawn(async move {
        for n in 2..=last {
            sender.send(n).await.unwrap();
        }
    });
    receiver
}

fn without_multiples(mut input: mpsc::Receiver<u64>, prime: u64) -> mpsc::Receiver<u64> {
    let (sender, receiver) = mpsc::channel(UNBUFFERED);
    tokio::spawn(async move {
        while let Some(n) = input.recv().await {
            if n % prime != 0 {
                sender.send(n).await.unwrap();
            }
        }
    });
    receiver
}

fn prime_sieve(b: &Bench) {
    let (last_prime, expected_primes, expected_sum) = if b.quick { (541, 100, 24_133) } else { (7919, 1000, 3_682_913) };
    let time = b.run(ns_per_operation(1, move || async move {
        let mut input = numbers_from_2_to(last_prime);
        let (mut primes, mut sum) = (0, 0);
        while let Some(prime) = input.recv().await {
            primes += 1;
            sum += prime;
            input = without_multiples(input, prime);
        }
        expect("prime-sieve: primes", primes, expected_primes);
        expect("prime-sieve: sum", sum, expected_sum);
    }));
    b.add("time", time / 1e6, "ms");
}
