package main

import (
	"sync"
	"time"
)

func init() {
	workloads["sleepers"] = sleepers
	workloads["sleep-overshoot"] = sleepOvershoot
}

// sleepers starts 100,000 goroutines that sleep for 0 to 1000 ms; the ideal end is 1000 ms after the start.
func sleepers(s settings, r results) {
	goroutines := s.scaled(100000)
	random := splitmix64{state: 1}
	var wg sync.WaitGroup
	wg.Add(goroutines)
	cpuBefore, start := cpuSeconds(), time.Now()
	for i := 0; i < goroutines; i++ {
		d := time.Duration(random.next() % uint64(time.Second))
		go func() {
			time.Sleep(d)
			wg.Done()
		}()
	}
	wg.Wait()
	took := time.Since(start)
	r.add("late", float64(took-time.Second)/1e6, "ms")
	r.add("cpu", cpuSeconds()-cpuBefore, "s")
}

func sleepOvershoot(s settings, r results) {
	const asked = 100 * time.Microsecond
	overshoot := make([]float64, s.scaled(1000))
	for i := range overshoot {
		start := time.Now()
		time.Sleep(asked)
		overshoot[i] = float64(time.Since(start)-asked) / 1e3
	}
	r.add("p50", percentile(overshoot, 0.50), "us")
	r.add("p99", percentile(overshoot, 0.99), "us")
}
