package main

import (
	"runtime"
	"sync"
	"time"
)

func init() {
	workloads["yield"] = func(s settings, r results) { yield(s, r, 2, s.scaled(100000)) }
	workloads["yield1000"] = func(s settings, r results) { yield(s, r, 1000, s.scaled(500)) }

	// Where Go has several usual forms, the twin is the fastest of them; the others stay here under their own names, so
	// that the choice can be checked: `go_bench spawn-join-waitgroup`.
	workloads["spawn-join"] = spawnJoinChannel
	workloads["spawn-join-wg"] = spawnJoinChannel
	workloads["spawn-join-waitgroup"] = spawnJoinWaitGroup
	workloads["spawn-join-new-channel"] = spawnJoinNewChannel
	workloads["spawn-million"] = spawnMillionShared
	workloads["spawn-million-closures"] = spawnMillionClosures
}

func yield(s settings, r results, goroutines, yields int) {
	r.add("time", nsPerOperation(goroutines*yields, func() {
		var wg sync.WaitGroup
		wg.Add(goroutines)
		for i := 0; i < goroutines; i++ {
			go func() {
				for n := 0; n < yields; n++ {
					runtime.Gosched()
				}
				wg.Done()
			}()
		}
		wg.Wait()
	}), "ns")
}

func spawnJoinChannel(s settings, r results) {
	rounds := s.scaled(100000)
	r.add("time", nsPerOperation(rounds, func() {
		done := make(chan int, 1)
		child := func() { done <- 1 } // outside of the loop: otherwise each round allocates a closure
		sum := 0
		for i := 0; i < rounds; i++ {
			go child()
			sum += <-done
		}
		if sum != rounds {
			fail("spawn-join: %d children of %d", sum, rounds)
		}
	}), "ns")
}

func spawnJoinWaitGroup(s settings, r results) {
	rounds := s.scaled(100000)
	r.add("time", nsPerOperation(rounds, func() {
		var wg sync.WaitGroup
		child := func() { wg.Done() }
		for i := 0; i < rounds; i++ {
			wg.Add(1)
			go child()
			wg.Wait()
		}
	}), "ns")
}

func spawnJoinNewChannel(s settings, r results) {
	rounds := s.scaled(100000)
	r.add("time", nsPerOperation(rounds, func() {
		for i := 0; i < rounds; i++ {
			done := make(chan int, 1)
			go func() { done <- 1 }()
			<-done
		}
	}), "ns")
}

func spawnMillionShared(s settings, r results) {
	spawnMillion(s, r, func(wg *sync.WaitGroup, goroutines int) {
		wg.Add(goroutines)
		child := func() { wg.Done() }
		for i := 0; i < goroutines; i++ {
			go child()
		}
	})
}

func spawnMillionClosures(s settings, r results) {
	spawnMillion(s, r, func(wg *sync.WaitGroup, goroutines int) {
		for i := 0; i < goroutines; i++ {
			wg.Add(1)
			go func() { wg.Done() }()
		}
	})
}

func spawnMillion(s settings, r results, spawn func(*sync.WaitGroup, int)) {
	goroutines := s.scaled(1000000)
	batch := func() {
		var wg sync.WaitGroup
		spawn(&wg, goroutines)
		wg.Wait()
	}
	start := time.Now()
	batch()
	first := float64(time.Since(start).Nanoseconds()) / float64(goroutines)
	r.add("time", nsPerOperation(goroutines, batch), "ns")
	r.add("first", first, "ns") // nothing allocated yet: what a program that does this once pays
	r.add("peak-rss", statusBytes("VmHWM")/1e6, "MB")
}
