package main

import (
	"sync"
	"sync/atomic"
	"time"
)

func init() {
	workloads["parked-memory"] = parkedMemory
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
