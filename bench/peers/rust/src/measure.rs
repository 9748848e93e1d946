//! Repetition, percentiles, and what the kernel says about this process. Twins: bench/measure.h, peers/go/measure.go.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::fail;

/// The same two limits as in bench/measure.h.
const BATCHES_MIN: usize = 2;
const MEASURED_MIN: Duration = Duration::from_millis(300);

pub fn ns(d: Duration) -> f64 {
    d.as_nanos() as f64
}

/// Runs `batch`, which carries out `operations`, once unmeasured and then until both limits are met; the median of the
/// batches, in nanoseconds per operation, counts.
pub async fn ns_per_operation<F, Batch>(operations: u64, mut batch: F) -> f64
where
    F: FnMut() -> Batch,
    Batch: Future<Output = ()>,
{
    batch().await;
    let mut samples = Vec::new();
    let mut total = Duration::ZERO;
    while samples.len() < BATCHES_MIN || total < MEASURED_MIN {
        let start = Instant::now();
        batch().await;
        let took = start.elapsed();
        total += took;
        samples.push(ns(took) / operations as f64);
    }
    percentile(&mut samples, 0.5)
}

/// Sorts `samples`. The value between two neighbours is interpolated.
pub fn percentile(samples: &mut [f64], q: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let position = q * (samples.len() - 1) as f64;
    let low = position as usize;
    if low + 1 == samples.len() {
        return samples[low];
    }
    samples[low] + (position - low as f64) * (samples[low + 1] - samples[low])
}

/// A field of /proc/self/status that is given in kB, for example VmRSS, VmHWM or VmPTE.
pub fn status_bytes(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_else(|error| fail(error));
    status
        .lines()
        .filter_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.split_whitespace().next()?.parse::<f64>().ok())
        .map(|kilobytes| kilobytes * 1024.0)
        .next()
        .unwrap_or_else(|| fail(format_args!("/proc/self/status has no field {field}")))
}

/// User and system time of this process up to now.
pub fn cpu_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) != 0 {
            fail("getrusage");
        }
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The random sequence that all languages use, so that all sleep for the same times.
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }
}
