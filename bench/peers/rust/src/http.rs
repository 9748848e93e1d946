//! A web server by hyper, which is what programs on Tokio take. Twin: bench/net_bench.cpp, examples/http_server.cpp.
//!
//! hyper reads each request, and makes the answer from its parts: status, headers and a text that is there already. It dates
//! the answer itself, anew each second.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{HeaderValue, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::net::{check, listen, run_load};
use crate::{Bench, Workload};

pub const WORKLOADS: &[Workload] = &[("http-hello P=1", http_hello)];

async fn greet(_: Request<hyper::body::Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut answer = Response::new(Full::new(Bytes::from_static(b"hello, world\n")));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(answer)
}

async fn serve(connection: TcpStream) {
    check(connection.set_nodelay(true));
    // An error is a client that has gone.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(connection), service_fn(greet)).await;
}

fn http_hello(b: &Bench) {
    let (listener, port) = listen(b);
    b.runtime.spawn(async move {
        loop {
            let (connection, _) = check(listener.accept().await);
            tokio::spawn(serve(connection));
        }
    });
    run_load(b, "http", port, &["--connections", "64", "--seconds", if b.quick { "1" } else { "3" }]);
}
