package main

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// The twins of bench/growth_bench.cpp: `go_bench grow-timers --n 1000`.
func init() {
	workloads["grow-goroutines"] = growGoroutines
	workloads["grow-pairs"] = growPairs
	workloads["grow-channels"] = growChannels
	workloads["grow-select"] = growSelect
	workloads["grow-timers"] = growTimers
	workloads["grow-echo"] = growEcho
	workloads["grow-idle"] = growIdle
}

// size is that of a workload that has no size of its own.
func (s settings) size() int {
	if s.n < 1 {
		fail("this workload needs --n")
	}
	return s.n
}

// repeated is how often operations are repeated, so that they are about total.
func repeated(s settings, total, operations, least int) int {
	if times := s.scaled(total) / operations; times > least {
		return times
	}
	return least
}

// crowd is goroutines that wait for values on one channel and take them until it is closed.
type crowd struct {
	values         chan int
	all            sync.WaitGroup
	arrived, taken int64
	given          int
}

// newCrowd returns when all are waiting, or at least on their way.
func newCrowd(n int) *crowd {
	c := &crowd{values: make(chan int)}
	c.all.Add(n)
	member := func() {
		atomic.AddInt64(&c.arrived, 1)
		taken := 0
		for range c.values {
			taken++
		}
		atomic.AddInt64(&c.taken, int64(taken))
		c.all.Done()
	}
	for i := 0; i < n; i++ {
		go member()
	}
	for atomic.LoadInt64(&c.arrived) < int64(n) {
		runtime.Gosched()
	}
	return c
}

func (c *crowd) give(values int) {
	for i := 0; i < values; i++ {
		c.values <- i
	}
	c.given += values
}

func (c *crowd) end() {
	close(c.values)
	c.all.Wait()
	if c.taken != int64(c.given) {
		fail("grow-goroutines: %d values of %d", c.taken, c.given)
	}
}

func growGoroutines(s settings, r results) {
	n := s.size()
	eachOf := func(total float64) float64 { return total / float64(n) }
	before := statusBytes("VmRSS") + statusBytes("VmPTE")
	start := time.Now()
	waiting := newCrowd(n)
	first := time.Since(start)
	time.Sleep(20 * time.Millisecond) // those that have counted themselves but do not wait yet
	r.add("memory", eachOf(statusBytes("VmRSS")+statusBytes("VmPTE")-before), "B")
	r.add("first", eachOf(float64(first.Nanoseconds())), "ns")

	rounds := repeated(s, 100000, n, 1)
	r.add("wake", nsPerOperation(n*rounds, func() { waiting.give(n * rounds) }), "ns")
	waiting.end()

	var lives []float64
	for total := time.Duration(0); len(lives) == 0 || total < measuredTime; {
		born := time.Now()
		newCrowd(n).end()
		took := time.Since(born)
		lives = append(lives, float64(took.Nanoseconds()))
		total += took
	}
	r.add("life", eachOf(percentile(lives, 0.5)), "ns")
}

func growPairs(s settings, r results) {
	pairs := s.size()
	rounds := repeated(s, 200000, pairs, 10)
	r.add("time", nsPerOperation(pairs*rounds, func() {
		var playing sync.WaitGroup
		playing.Add(2 * pairs)
		for i := 0; i < pairs; i++ {
			ping, pong := make(chan int), make(chan int)
			go func() {
				for n := range ping {
					pong <- n + 1
				}
				playing.Done()
			}()
			go func() {
				for n := 0; n < rounds; n++ {
					ping <- n
					if reply := <-pong; reply != n+1 {
						fail("grow-pairs: a wrong reply")
					}
				}
				close(ping)
				playing.Done()
			}()
		}
		playing.Wait()
	}), "ns")
}

func growChannels(s settings, r results) {
	n := s.size()
	hops := s.scaled(200000)
	if hops < 5*n {
		hops = 5 * n
	}
	before := statusBytes("VmRSS")
	links := make([]chan int, 0, n)
	for i := 0; i < n; i++ {
		links = append(links, make(chan int, 1))
	}
	// The kernel counts in pages, and a few channels need less than one.
	if n >= 1000 {
		r.add("memory", (statusBytes("VmRSS")-before)/float64(n), "B")
	}
	last := make(chan int, 1)
	var members sync.WaitGroup
	members.Add(n)
	for i := range links {
		in, out := links[i], links[(i+1)%n]
		go func() {
			for token := range in {
				if token == 0 {
					last <- token
				} else {
					out <- token - 1
				}
			}
			members.Done()
		}()
	}
	ns := nsPerOperation(hops, func() {
		links[0] <- hops
		<-last
	})
	for _, link := range links {
		close(link)
	}
	members.Wait()
	r.add("time", ns, "ns")
}

// growSelect: Go selects over a number of channels that is not in the program's text through reflection only.
func growSelect(s settings, r results) {
	n := s.size()
	selects := repeated(s, 1000000, n, 50)
	channels := make([]chan int, n)
	cases := make([]reflect.SelectCase, n)
	for i := range channels {
		channels[i] = make(chan int, 1)
		cases[i] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(channels[i])}
	}
	random := splitmix64{state: 1}
	r.add("time", nsPerOperation(selects, func() {
		sum := 0
		for i := 0; i < selects; i++ {
			place := int(random.next() % uint64(n))
			channels[place] <- 1
			taken, value, _ := reflect.Select(cases)
			if taken != place {
				fail("grow-select: another case than the one that is ready")
			}
			sum += int(value.Int())
		}
		if sum != selects {
			fail("grow-select: values were lost")
		}
	}), "ns")
}

func growTimers(s settings, r results) {
	n, rounds := s.size(), s.scaled(200000)
	var fired int64
	count := func() { atomic.AddInt64(&fired, 1) }
	random := splitmix64{state: 1}
	below := func(limit time.Duration) time.Duration { return time.Duration(random.next() % uint64(limit)) }

	pending := make([]*time.Timer, n)
	for i := range pending {
		pending[i] = nil // the pages of the slice are not the timers'
	}
	before := statusBytes("VmRSS")
	start := time.Now()
	for i := range pending {
		pending[i] = time.AfterFunc(30*time.Minute+below(time.Hour), count)
	}
	r.add("create", float64(time.Since(start).Nanoseconds())/float64(n), "ns")
	if n >= 1000 {
		r.add("memory", (statusBytes("VmRSS")-before)/float64(n), "B")
	}

	r.add("time", nsPerOperation(rounds, func() {
		for i := 0; i < rounds; i++ {
			expectPending(time.AfterFunc(time.Hour, count).Stop())
		}
	}), "ns")
	for _, t := range pending {
		expectPending(t.Stop())
	}
	if atomic.LoadInt64(&fired) != 0 {
		fail("grow-timers: a timer that was stopped has fired")
	}

	cpuBefore := cpuSeconds()
	var allFired sync.WaitGroup
	allFired.Add(n)
	for i := range pending {
		pending[i] = time.AfterFunc(below(100*time.Millisecond), allFired.Done)
	}
	allFired.Wait()
	r.add("fire", (cpuSeconds()-cpuBefore)*1e9/float64(n), "ns")
}

func growEcho(s settings, r results) {
	listener := listenOnLoopback()
	go serveEcho(listener)
	seconds := "0.5"
	if s.quick {
		seconds = "0.1"
	}
	runLoad(r, "echo", listener.Addr(), "--connections", fmt.Sprint(s.size()), "--seconds", seconds)
}

func growIdle(s settings, r results) {
	listener := listenOnLoopback()
	go serveEcho(listener)
	runLoad(r, "idle", listener.Addr(), "--connections", fmt.Sprint(s.size()))
}
