//! Divide and conquer with a task per call. Twin: bench/forkjoin_bench.cpp; sizes and shapes follow the public suite
//! tzcnt/runtime-benchmarks.

use std::future::Future;
use std::pin::Pin;

use crate::measure::ns_per_operation;
use crate::{expect, join, Bench, Workload};

pub const WORKLOADS: &[Workload] = &[("fib", fib_30), ("skynet-tg", skynet_tree), ("nqueens", nqueens)];

/// No `async fn`: whether a future may go to another thread would then follow from the code that is just being compiled.
/// The call that is no task is in a box, because a state cannot contain another of its own size.
fn fib(n: u64) -> impl Future<Output = u64> + Send {
    async move {
        if n < 2 {
            return n;
        }
        let a = tokio::spawn(fib(n - 1));
        let b: Pin<Box<dyn Future<Output = u64> + Send>> = Box::pin(fib(n - 2));
        let b = b.await;
        a.await.unwrap() + b
    }
}

fn fib_30(b: &Bench) {
    let (n, expected) = if b.quick { (25, 75_025) } else { (30, 832_040) };
    let time = b.run(ns_per_operation(1, move || async move {
        expect("fib", fib(n).await, expected);
    }));
    b.add("time", time / 1e6, "ms");
}

const BRANCHES: u64 = 10;

fn skynet(number: u64, leaves: u64) -> impl Future<Output = u64> + Send {
    async move {
        if leaves == 1 {
            return number;
        }
        let part = leaves / BRANCHES;
        let children = (0..BRANCHES).map(|i| tokio::spawn(skynet(number + i * part, part))).collect();
        join(children).await.into_iter().sum()
    }
}

fn skynet_tree(b: &Bench) {
    let leaves = b.scaled(1_000_000);
    let time = b.run(ns_per_operation(1, move || async move {
        expect("skynet-tg", skynet(0, leaves).await, leaves * (leaves - 1) / 2);
    }));
    b.add("time", time / 1e6, "ms");
}

const BOARD_MAX: usize = 12;

/// The row of the queen in each column.
type Board = [i8; BOARD_MAX];

fn is_free(queens: &Board, column: usize, row: usize) -> bool {
    (0..column).all(|c| {
        let (queen, row, distance) = (i32::from(queens[c]), row as i32, (column - c) as i32);
        queen != row && queen != row - distance && queen != row + distance
    })
}

fn places(queens: Board, column: usize, size: usize) -> impl Future<Output = u64> + Send {
    async move {
        if column == size {
            return 1;
        }
        let children = (0..size)
            .filter(|&row| is_free(&queens, column, row))
            .map(|row| {
                let mut next = queens;
                next[column] = row as i8;
                tokio::spawn(places(next, column + 1, size))
            })
            .collect();
        join(children).await.into_iter().sum()
    }
}

fn nqueens(b: &Bench) {
    let (size, expected) = if b.quick { (10, 724) } else { (12, 14_200) };
    let time = b.run(ns_per_operation(1, move || async move {
        expect("nqueens", places(Board::default(), 0, size).await, expected);
    }));
    b.add("time", time / 1e6, "ms");
}
