package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

func init() {
	workloads["sleepers"] = func(s settings, r results) { sleepTogether(r, s.scaled(100000)) }
	workloads["sleepers-million"] = func(s settings, r results) { sleepTogether(r, s.scaled(1000000)) }
	workloads["sleep-overshoot"] = sleepOvershoot
	workloads["timer-stop"] = timerStop
	workloads["deadlines"] = deadlines
	workloads["after-func-stop"] = func(s settings, r results) { afterFuncStop(s, r, 0) }
	workloads["after-func-stop-100k"] = func(s settings, r results) { afterFuncStop(s, r, 100000) }
}

// sleepTogether starts goroutines that sleep for 0 to 1000 ms; the ideal end is 1000 ms after the start.
func sleepTogether(r results, goroutines int) {
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

func expectPending(wasPending bool) {
	if !wasPending {
		fail("a timer of an hour was not pending when it was stopped")
	}
}

func timerStop(s settings, r results) {
	rounds := s.scaled(200000)
	r.add("time", nsPerOperation(rounds, func() {
		for i := 0; i < rounds; i++ {
			t := time.NewTimer(time.Hour)
			if t.C == nil {
				fail("timer-stop: no channel")
			}
			expectPending(t.Stop())
		}
	}), "ns")
	// Of a deadline for a channel that is never needed.
	r.add("unasked", nsPerOperation(rounds, func() {
		for i := 0; i < rounds; i++ {
			t := time.NewTimer(time.Hour)
			expectPending(t.Stop())
		}
	}), "ns")
}

// afterFuncStop measures beside pending other timers, which are due from half an hour before to half an hour after.
func afterFuncStop(s settings, r results, pending int) {
	rounds := s.scaled(200000)
	var fired int64
	count := func() { atomic.AddInt64(&fired, 1) }
	random := splitmix64{state: 1}
	var others []*time.Timer
	for i := 0; i < pending; i++ {
		others = append(others, time.AfterFunc(30*time.Minute+time.Duration(random.next()%uint64(time.Hour)), count))
	}
	ns := nsPerOperation(rounds, func() {
		for i := 0; i < rounds; i++ {
			expectPending(time.AfterFunc(time.Hour, count).Stop())
		}
	})
	for _, t := range others {
		expectPending(t.Stop())
	}
	if atomic.LoadInt64(&fired) != 0 {
		fail("after-func-stop: a timer that was stopped has fired")
	}
	r.add("time", ns, "ns")
}

type pendingDeadline struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// deadlinesNs: every request has a deadline, which is cancelled when it is answered; all of them are pending at once.
func deadlinesNs(requests int, asked bool) float64 {
	return nsPerOperation(requests, func() {
		pending := make([]pendingDeadline, requests)
		for i := range pending {
			p := &pending[i]
			p.ctx, p.cancel = context.WithTimeout(context.Background(), 30*time.Second)
			if asked && p.ctx.Done() == nil {
				fail("deadlines: nothing to wait for")
			}
		}
		for _, p := range pending {
			p.cancel()
			if p.ctx.Err() != context.Canceled {
				fail("deadlines: not cancelled")
			}
		}
	})
}

func deadlines(s settings, r results) {
	requests := s.scaled(100000)
	r.add("time", deadlinesNs(requests, true), "ns")
	r.add("unasked", deadlinesNs(requests, false), "ns")
}
