// The Go twin of bench/nats: nats.go does what nats_bench.cpp has dunlin::nats do, and what libnats does alone.
//
// NATS_URL names the server. Each line of standard input is "WHAT COUNT"; the seconds that it took are printed. It is
// compiled with the distribution's package of nats.go, outside module mode, so that nothing is fetched.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	subject  = "bench"
	bytes    = 100
	window   = 1024
	workers  = 64
	inFlight = 256
)

var next int64 // makes ids that no other run has

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats_go_bench:", err)
		os.Exit(1)
	}
}

// publish sends jobs without waiting for each answer, with an id each or without.
func publish(js nats.JetStreamContext, count int, withID bool) {
	data := make([]byte, bytes)
	for i := 0; i < count; i++ {
		var options []nats.PubOpt
		if withID {
			next++
			options = append(options, nats.MsgId(fmt.Sprintf("go-%d-%d", os.Getpid(), next)))
		}
		_, err := js.PublishAsync(subject, data, options...)
		must(err)
	}
	<-js.PublishAsyncComplete()
}

// consume takes jobs ahead and acknowledges each in one of the workers, which waits for the confirmation if asked to.
func consume(nc *nats.Conn, js nats.JetStreamContext, count int, confirmed bool) {
	s, err := js.PullSubscribe(subject, "workers", nats.Bind(subject, "workers"))
	must(err)
	taken := make(chan *nats.Msg, inFlight)
	var all sync.WaitGroup
	var done int64
	for w := 0; w < workers; w++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for m := range taken {
				if confirmed {
					must(m.AckSync())
				} else {
					must(m.Ack())
				}
				atomic.AddInt64(&done, 1)
			}
		}()
	}
	for got := 0; got < count; {
		want := inFlight / 2
		if count-got < want {
			want = count - got
		}
		batch, err := s.Fetch(want, nats.MaxWait(10*time.Second))
		must(err)
		for _, m := range batch {
			taken <- m
		}
		got += len(batch)
	}
	close(taken)
	all.Wait()
	must(nc.Flush())
	must(s.Unsubscribe())
}

func request(nc *nats.Conn, count int) {
	s, err := nc.Subscribe("ping-go", func(m *nats.Msg) { must(m.Respond([]byte("pong"))) })
	must(err)
	must(nc.Flush())
	for i := 0; i < count; i++ {
		_, err := nc.Request("ping-go", []byte("ping"), 5*time.Second)
		must(err)
	}
	must(s.Unsubscribe())
}

func main() {
	nc, err := nats.Connect(os.Getenv("NATS_URL"))
	must(err)
	js, err := nc.JetStream(nats.PublishAsyncMaxPending(window))
	must(err)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var what, number string
		_, err := fmt.Sscan(lines.Text(), &what, &number)
		must(err)
		count, err := strconv.Atoi(number)
		must(err)
		began := time.Now()
		switch what {
		case "publish-id":
			publish(js, count, true)
		case "publish":
			publish(js, count, false)
		case "consume":
			consume(nc, js, count, false)
		case "consume-confirmed":
			consume(nc, js, count, true)
		case "request":
			request(nc, count)
		default:
			must(fmt.Errorf("%q is not understood", what))
		}
		fmt.Printf("%.6f\n", time.Since(began).Seconds())
	}
}
