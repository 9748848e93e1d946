package main

import (
	"runtime/pprof"
	"sync"
	"syscall"
	"time"
)

func init() {
	workloads["blocking-trivial"] = blockingTrivial
	workloads["blocking-1ms"] = blocking1ms
}

// blockingTrivial: Syscall tells the scheduler, RawSyscall does not.
func blockingTrivial(s settings, r results) {
	pairs := s.scaled(1500)
	const calls = 2000
	perCall := func(start time.Time) float64 { return float64(time.Since(start).Nanoseconds()) / calls }
	raw := func() float64 {
		start := time.Now()
		for i := 0; i < calls; i++ {
			syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0)
		}
		return perCall(start)
	}
	announced := func() float64 {
		start := time.Now()
		for i := 0; i < calls; i++ {
			syscall.Syscall(syscall.SYS_GETPPID, 0, 0, 0)
		}
		return perCall(start)
	}
	raw()
	announced()
	var rawNs, overheadNs []float64
	for pair := 0; pair < pairs; pair++ {
		without := raw()
		rawNs = append(rawNs, without)
		overheadNs = append(overheadNs, announced()-without)
	}
	r.add("overhead", percentile(overheadNs, 0.5), "ns")
	r.add("raw", percentile(rawNs, 0.5), "ns")
}

func blocking1ms(s settings, r results) {
	goroutines := s.scaled(1000)
	once := func() float64 {
		var wg sync.WaitGroup
		wg.Add(goroutines)
		start := time.Now()
		for i := 0; i < goroutines; i++ {
			go func() {
				t := syscall.Timespec{Nsec: 1000000}
				syscall.Nanosleep(&t, nil)
				wg.Done()
			}()
		}
		wg.Wait()
		return float64(time.Since(start)) / 1e6
	}
	r.add("time", once(), "ms")
	again := make([]float64, 20)
	for i := range again {
		again[i] = once()
	}
	r.add("again", percentile(again, 0.5), "ms")
	r.add("threads", float64(pprof.Lookup("threadcreate").Count()), "threads")
}
