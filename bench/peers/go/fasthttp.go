//go:build fasthttp

package main

import (
	"github.com/valyala/fasthttp"
)

func init() {
	workloads["http-hello-fasthttp"] = httpHelloFasthttp
}

// httpHelloFasthttp is a server by the library that is made to be fast. It reads each request and makes the answer, with a
// date that it renews once a second. It names no server, as the others.
func httpHelloFasthttp(s settings, r results) {
	listener := listenOnLoopback()
	hello := []byte("hello, world\n")
	server := &fasthttp.Server{
		NoDefaultServerHeader: true,
		Handler: func(request *fasthttp.RequestCtx) {
			request.SetContentType("text/plain; charset=utf-8")
			request.SetBody(hello)
		},
	}
	go server.Serve(listener)
	loadHTTP(s, r, listener)
}
