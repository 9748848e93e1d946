package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// runLoad runs bench/load's program with these words behind its kind and port, and passes its metrics on.
func runLoad(r results, kind string, address net.Addr, words ...string) {
	program := os.Getenv("DUNLIN_BENCH_LOAD")
	if program == "" {
		program = "build/bench-peers/net_load"
	}
	port := strconv.Itoa(address.(*net.TCPAddr).Port)
	command := exec.Command(program, append([]string{kind, port}, words...)...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		fail("%v", err)
	}
	if err := command.Start(); err != nil {
		fail("%v", err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		parts := strings.Fields(lines.Text())
		value, err := strconv.ParseFloat(parts[1], 64)
		if err != nil {
			fail("%v", err)
		}
		r.add(parts[0], value, parts[2])
	}
	if err := command.Wait(); err != nil {
		fail("the load has failed: %v", err)
	}
}

func listenOnLoopback() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail("%v", err)
	}
	return listener
}

// serveEcho accepts connections and sends back what comes in, a goroutine for each.
func serveEcho(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			buffer := make([]byte, 1024)
			for {
				n, err := connection.Read(buffer)
				if n > 0 {
					if _, err := connection.Write(buffer[:n]); err != nil {
						fail("%v", err)
					}
				}
				if err != nil {
					if err != io.EOF {
						fail("%v", err)
					}
					return
				}
			}
		}()
	}
}

func echo(kind string, connections int) workload {
	return func(s settings, r results) {
		listener := listenOnLoopback()
		go serveEcho(listener)
		seconds := "1"
		if s.quick {
			seconds = "0.1"
		}
		words := []string{"--connections", fmt.Sprint(connections), "--seconds", seconds}
		if s.procs > 1 {
			words = append(words, "--free")
		}
		runLoad(r, kind, listener.Addr(), words...)
	}
}

func echoSyscalls(s settings, r results) {
	listener := listenOnLoopback()
	go serveEcho(listener)
	runLoad(r, "echo", listener.Addr(), "--calls", "--requests", fmt.Sprint(s.scaled(20_000)))
}

func echo10m(s settings, r results) {
	listener := listenOnLoopback()
	go serveEcho(listener)
	words := []string{"--requests", fmt.Sprint(s.scaled(10_000_000))}
	if s.procs > 1 {
		words = append(words, "--free")
	}
	runLoad(r, "echo", listener.Addr(), words...)
}

func idleConnections(s settings, r results) {
	listener := listenOnLoopback()
	go serveEcho(listener)
	runLoad(r, "idle", listener.Addr(), "--connections", fmt.Sprint(s.scaled(20_000)))
}

// greeting is an answer that is made once for a connection; only its date changes, once a second.
type greeting struct {
	dated int64
	bytes []byte
}

func (g *greeting) now() []byte {
	if now := time.Now(); now.Unix() != g.dated {
		g.dated = now.Unix()
		g.bytes = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nDate: " +
			now.UTC().Format(http.TimeFormat) + "\r\nContent-Length: 13\r\n\r\nhello, world\n")
	}
	return g.bytes
}

// serveGreetings reads requests with the library and writes an answer that is there already, as dunlin's example does.
func serveGreetings(connection net.Conn) {
	defer connection.Close()
	reader := bufio.NewReader(connection)
	var answer greeting
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return // the end of the stream, in most cases
		}
		io.Copy(io.Discard, request.Body)
		if _, err := connection.Write(answer.now()); err != nil || request.Close {
			return
		}
	}
}

func httpHello(s settings, r results) {
	listener := listenOnLoopback()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go serveGreetings(connection)
		}
	}()
	loadHTTP(s, r, listener)
}

// httpHelloNetHTTP is the library's own server, which routes, keeps deadlines and makes each answer anew.
func httpHelloNetHTTP(s settings, r results) {
	listener := listenOnLoopback()
	hello := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello, world\n") }
	go http.Serve(listener, http.HandlerFunc(hello))
	loadHTTP(s, r, listener)
}

func loadHTTP(s settings, r results, listener net.Listener) {
	seconds := "3"
	if s.quick {
		seconds = "1" // wrk counts in whole ones
	}
	runLoad(r, "http", listener.Addr(), "--connections", "64", "--seconds", seconds)
}

func init() {
	workloads["echo-64"] = echo("echo", 64)
	workloads["echo-1000"] = echo("echo", 1000)
	workloads["echo-think"] = func(s settings, r results) { echo("think", s.scaled(10_000))(s, r) }
	workloads["echo-syscalls"] = echoSyscalls
	workloads["echo-10m"] = echo10m
	workloads["idle-connections"] = idleConnections
	workloads["http-hello"] = httpHello
	workloads["http-hello-net-http"] = httpHelloNetHTTP
}
