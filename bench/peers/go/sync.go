package main

import "sync"

func init() {
	workloads["mutex"] = func(s settings, r results) { countUnderLock(r, 1, s.scaled(1000000)) }
	workloads["mutex-8"] = func(s settings, r results) { countUnderLock(r, 8, s.scaled(1000000)) }
}

// countUnderLock has goroutines lock, count and unlock, total times together.
func countUnderLock(r results, goroutines, total int) {
	each := total / goroutines
	r.add("time", nsPerOperation(goroutines*each, func() {
		var lock sync.Mutex
		counter := 0
		var wg sync.WaitGroup
		wg.Add(goroutines)
		for i := 0; i < goroutines; i++ {
			go func() {
				for n := 0; n < each; n++ {
					lock.Lock()
					counter++
					lock.Unlock()
				}
				wg.Done()
			}()
		}
		wg.Wait()
		if counter != goroutines*each {
			fail("mutex: the counter is wrong, so the lock does not exclude")
		}
	}), "ns")
}
