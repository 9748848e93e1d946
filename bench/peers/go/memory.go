package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func init() {
	workloads["parked-memory"] = parkedMemory
	workloads["alloc-churn"] = allocChurn
	workloads["live-stack-1"] = func(s settings, r results) { liveStack(s, r, 1) }
	workloads["live-stack-4"] = func(s settings, r results) { liveStack(s, r, 4) }
	workloads["live-stack-16"] = func(s settings, r results) { liveStack(s, r, 16) }
	workloads["live-stack-64"] = func(s settings, r results) { liveStack(s, r, 64) }
}

func parkedMemory(s settings, r results) {
	goroutines := s.scaled(1000000)
	gate := make(chan struct{})
	var parked int64
	var all sync.WaitGroup
	all.Add(goroutines)

	rssBefore, tablesBefore := statusBytes("VmRSS"), statusBytes("VmPTE")
	start := time.Now()
	for i := 0; i < goroutines; i++ {
		go func() {
			atomic.AddInt64(&parked, 1)
			<-gate
			all.Done()
		}()
	}
	for atomic.LoadInt64(&parked) < int64(goroutines) {
		time.Sleep(time.Millisecond)
	}
	created := time.Since(start)
	time.Sleep(20 * time.Millisecond) // those that have counted themselves but do not wait yet
	each := func(bytes float64) float64 { return bytes / float64(goroutines) }
	resident, tables := each(statusBytes("VmRSS")-rssBefore), each(statusBytes("VmPTE")-tablesBefore)

	start = time.Now()
	close(gate)
	all.Wait()
	ended := time.Since(start)

	r.add("memory", resident+tables, "B")
	r.add("resident", resident, "B")
	r.add("page-tables", tables, "B")
	r.add("create", each(float64(created.Nanoseconds())), "ns")
	r.add("end", each(float64(ended.Nanoseconds())), "ns")
}

const churnMin, churnMax, churnCapacity = 64, 4096, 128

func churnSize(random *splitmix64) int { return churnMin + int(random.next()%(churnMax-churnMin+1)) }

// allocChurn: one goroutine allocates values, another one drops them.
func allocChurn(s settings, r results) {
	values := s.scaled(200000)
	pattern := make([]byte, churnMax)
	for i := range pattern {
		pattern[i] = byte(i * 31)
	}
	expected := 0
	random := splitmix64{state: 1}
	for i := 0; i < values; i++ {
		size := churnSize(&random)
		expected += size + int(pattern[size-1])
	}
	r.add("time", nsPerOperation(values, func() {
		made := make(chan []byte, churnCapacity)
		go func() {
			random := splitmix64{state: 1}
			for i := 0; i < values; i++ {
				made <- append([]byte(nil), pattern[:churnSize(&random)]...)
			}
			close(made)
		}()
		sum := 0
		for value := range made {
			sum += len(value) + int(value[len(value)-1])
		}
		expect("alloc-churn", sum, expected)
	}), "ns")
	r.add("peak-rss", statusBytes("VmHWM")/1e6, "MB")
}

// withLiveStack calls then below frames that are in use, of 1 KiB each.
//
//go:noinline
func withLiveStack(kib int, then func()) int {
	var frame [960]byte
	for i := 0; i < len(frame); i += 64 {
		frame[i] = byte(kib)
	}
	sum := 0
	if kib > 1 {
		sum = withLiveStack(kib-1, then)
	} else {
		then()
	}
	return sum + int(frame[kib%15*64])
}

func liveStack(s settings, r results, kib int) {
	goroutines, rounds := s.scaled(10000), 20
	gate := make(chan struct{})
	var parked, sums int64
	var all sync.WaitGroup
	all.Add(goroutines)
	before := statusBytes("VmRSS") + statusBytes("VmPTE")
	for i := 0; i < goroutines; i++ {
		go func() {
			sum := withLiveStack(kib, func() {
				atomic.AddInt64(&parked, 1)
				<-gate
				for n := 0; n < rounds; n++ {
					runtime.Gosched()
				}
			})
			atomic.AddInt64(&sums, int64(sum))
			all.Done()
		}()
	}
	for atomic.LoadInt64(&parked) < int64(goroutines) {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // those that have counted themselves but do not wait yet
	r.add("memory", (statusBytes("VmRSS")+statusBytes("VmPTE")-before)/float64(goroutines), "B")
	start := time.Now()
	close(gate)
	all.Wait()
	r.add("switch", float64(time.Since(start).Nanoseconds())/float64(goroutines*rounds), "ns")
	expect("live-stack", int(sums), goroutines*(kib*(kib+1)/2))
}
