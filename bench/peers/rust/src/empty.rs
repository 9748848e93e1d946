//! What start-up runs: a runtime of one thread beside main's, and a task that does nothing.

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async { tokio::spawn(async {}).await.unwrap() });
}
