// In Go, every call that the scheduler does not know is a call through cgo, and announced to it: so these twins of
// unannotated calls are built into the second program, see wake_idle_cgo.go.

package main

/*
#cgo LDFLAGS: -pthread
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static void sleep_ms(int ms) {
	struct timespec t = {0, ms * 1000000L};
	nanosleep(&t, 0);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// In one call: the next one might come from another thread.
static void hold_mutex_1ms(void) {
	pthread_mutex_lock(&mutex);
	sleep_ms(1);
	pthread_mutex_unlock(&mutex);
}

static int send_byte(int to) {
	char byte = 0;
	return write(to, &byte, 1) == 1;
}

static int receive_byte(int from) {
	char byte;
	return read(from, &byte, 1) == 1;
}
*/
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func init() {
	workloads["unannotated-sleep"] = func(s settings, r results) {
		besideTwoForEachP(s, r, func() { C.sleep_ms(5) })
	}
	workloads["unannotated-pipe"] = unannotatedPipe
	workloads["unannotated-mutex"] = func(s settings, r results) {
		besideTwoForEachP(s, r, func() { C.hold_mutex_1ms() })
	}
}

// ticksBeside calls start, which starts what blocks threads until stop, and sleeps for 1 ms again and again: how much
// longer that takes.
func ticksBeside(s settings, r results, start func(wg *sync.WaitGroup, stop *int32)) {
	length := time.Duration(s.scaled(2000)) * time.Millisecond
	var beyond []float64
	var stop int32
	var wg sync.WaitGroup
	start(&wg, &stop)
	begin := time.Now()
	for last := begin; last.Sub(begin) < length; {
		time.Sleep(time.Millisecond)
		now := time.Now()
		beyond = append(beyond, float64(now.Sub(last)-time.Millisecond)/1e6)
		last = now
	}
	atomic.StoreInt32(&stop, 1)
	wg.Wait()
	r.add("p50", percentile(beyond, 0.50), "ms")
	r.add("p99", percentile(beyond, 0.99), "ms")
	r.add("max", percentile(beyond, 1), "ms")
}

func besideTwoForEachP(s settings, r results, call func()) {
	ticksBeside(s, r, func(wg *sync.WaitGroup, stop *int32) {
		for i := 0; i < 2*runtime.GOMAXPROCS(0); i++ {
			wg.Add(1)
			go func() {
				for atomic.LoadInt32(stop) == 0 {
					call()
				}
				wg.Done()
			}()
		}
	})
}

func unannotatedPipe(s settings, r results) {
	ticksBeside(s, r, func(wg *sync.WaitGroup, stop *int32) {
		for pair := 0; pair < runtime.GOMAXPROCS(0); pair++ {
			var there, back [2]int
			if syscall.Pipe(there[:]) != nil || syscall.Pipe(back[:]) != nil {
				fail("unannotated-pipe: no pipe")
			}
			wg.Add(2)
			go func() {
				for atomic.LoadInt32(stop) == 0 {
					if C.send_byte(C.int(there[1])) == 0 || C.receive_byte(C.int(back[0])) == 0 {
						fail("unannotated-pipe: a byte is lost")
					}
				}
				syscall.Close(there[1])
				wg.Done()
			}()
			go func() {
				for C.receive_byte(C.int(there[0])) != 0 {
					if C.send_byte(C.int(back[1])) == 0 {
						fail("unannotated-pipe: a byte is lost")
					}
				}
				wg.Done()
			}()
		}
	})
}
