package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func init() {
	workloads["hogs-wake"] = hogsWake
	workloads["hogs-fair"] = hogsFair
	workloads["hogs-throughput"] = hogsThroughput
	workloads["idle-cpu"] = idleCPU
}

// workUnit takes about a tenth of a millisecond and makes no call.
func workUnit(x uint64) uint64 {
	for step := 0; step < 100000; step++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// worker is one goroutine's work. A cache line each, so that counting disturbs no other.
type worker struct {
	units int64
	value uint64 // kept, so that the work is not in vain
	_     [48]byte
}

func (w *worker) work() {
	w.value = workUnit(w.value)
	atomic.StoreInt64(&w.units, w.units+1)
}

func (w *worker) workUntil(stop *int32) {
	for atomic.LoadInt32(stop) == 0 {
		w.work()
	}
}

func unitsOf(workers []worker) float64 {
	sum := int64(0)
	for i := range workers {
		sum += atomic.LoadInt64(&workers[i].units)
	}
	return float64(sum)
}

func meanUnits(workers []worker) float64 { return unitsOf(workers) / float64(len(workers)) }

// startHogs starts two hogs for each P.
func startHogs(wg *sync.WaitGroup, stop *int32) []worker {
	hogs := make([]worker, 2*runtime.GOMAXPROCS(0))
	wg.Add(len(hogs))
	for i := range hogs {
		hog := &hogs[i]
		go func() {
			hog.workUntil(stop)
			wg.Done()
		}()
	}
	return hogs
}

func hogsWake(s settings, r results) {
	length := time.Duration(s.scaled(2000)) * time.Millisecond
	var delays []float64
	var wg sync.WaitGroup
	var stop int32
	startHogs(&wg, &stop)
	for start := time.Now(); time.Since(start) < length; {
		asleepAt := time.Now()
		time.Sleep(time.Millisecond)
		delays = append(delays, float64(time.Since(asleepAt)-time.Millisecond)/1e6)
	}
	atomic.StoreInt32(&stop, 1)
	wg.Wait()
	r.add("p50", percentile(delays, 0.50), "ms")
	r.add("p99", percentile(delays, 0.99), "ms")
}

func hogsFair(s settings, r results) {
	unitsEach := s.scaled(4000)
	hogs, yielders := make([]worker, 4*runtime.GOMAXPROCS(0)), make([]worker, 2)
	finished := make([]float64, len(hogs))
	var oneFinished int32
	var ofAHog, ofAYielder float64
	var start time.Time
	gate := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(len(hogs) + len(yielders))
	for i := range yielders {
		w := &yielders[i]
		go func() {
			<-gate
			for atomic.LoadInt32(&oneFinished) == 0 {
				w.work()
				runtime.Gosched()
			}
			wg.Done()
		}()
	}
	for i := range hogs {
		i := i
		go func() {
			<-gate
			for n := 0; n < unitsEach; n++ {
				hogs[i].work()
			}
			finished[i] = float64(time.Since(start))
			if atomic.CompareAndSwapInt32(&oneFinished, 0, 1) {
				ofAHog, ofAYielder = meanUnits(hogs), meanUnits(yielders)
			}
			wg.Done()
		}()
	}
	time.Sleep(10 * time.Millisecond) // all wait at the gate
	start = time.Now()
	close(gate)
	wg.Wait()
	if ofAYielder < 0.5 {
		ofAYielder = 0.5
	}
	last := percentile(finished, 1)
	r.add("spread", (last-percentile(finished, 0))/last*100, "%")
	r.add("yielders", ofAHog/ofAYielder, "x")
}

// hogsThroughput has no threads to compare with: `relative` is dunlin's alone.
func hogsThroughput(s settings, r results) {
	length := time.Duration(s.scaled(1000)) * time.Millisecond
	var samples []float64
	for slice := 0; slice < 2; slice++ {
		var wg sync.WaitGroup
		var stop int32
		start := time.Now()
		hogs := startHogs(&wg, &stop)
		time.Sleep(length)
		units := unitsOf(hogs)
		took := time.Since(start)
		atomic.StoreInt32(&stop, 1)
		wg.Wait()
		samples = append(samples, float64(took.Nanoseconds())/units/1e3)
	}
	r.add("time", percentile(samples, 0.5), "us")
}

func idleCPU(s settings, r results) {
	goroutines := s.scaled(10000)
	length := time.Duration(s.scaled(10000)) * time.Millisecond
	gate := make(chan struct{})
	var all sync.WaitGroup
	all.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		go func() {
			<-gate
			all.Done()
		}()
	}
	time.Sleep(200 * time.Millisecond) // until all wait, and the threads have gone to sleep
	cpuBefore, start := cpuSeconds(), time.Now()
	time.Sleep(length)
	took := time.Since(start)
	r.add("cpu", (cpuSeconds()-cpuBefore)/took.Seconds()*100, "%")
	close(gate)
	all.Wait()
}
