// Only a foreign thread can start a goroutine without holding a P, and Go reaches foreign threads through cgo. A
// program with cgo starts its threads in another way, so this file is built into a second program (go_bench_cgo) and
// the other workloads stay in one without it. The go command leaves the file out when CGO_ENABLED=0.

package main

/*
#cgo LDFLAGS: -pthread
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static long long now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void sleep_1ms(void) {
	struct timespec t = {0, 1000000};
	nanosleep(&t, 0);
}

extern void startGoroutine(void);
extern void threadFinished(void);

static atomic_llong ran_at;
static void note_run(void) { atomic_store(&ran_at, now_ns()); }

static long sample_count;
static double *samples_us;

// The twin of the std::thread in bench/sched_bench.cpp: it sleeps, so that the runtime is idle, and starts one goroutine.
static void *plain_thread(void *unused) {
	(void)unused;
	for (long i = 0; i < sample_count; ++i) {
		sleep_1ms();
		atomic_store(&ran_at, 0);
		const long long asked_at = now_ns();
		startGoroutine();
		while (atomic_load(&ran_at) == 0) sleep_1ms();
		samples_us[i] = (atomic_load(&ran_at) - asked_at) / 1e3;
	}
	threadFinished();
	return 0;
}

static int start_plain_thread(long count, double *samples) {
	pthread_t thread;
	sample_count = count;
	samples_us = samples;
	const int failed = pthread_create(&thread, 0, plain_thread, 0);
	return failed ? failed : pthread_detach(thread);
}
*/
import "C"

import "unsafe"

func init() {
	workloads["wake-idle"] = wakeIdle
}

//export startGoroutine
func startGoroutine() {
	go func() { C.note_run() }()
}

var finished = make(chan struct{})

//export threadFinished
func threadFinished() {
	close(finished)
}

func wakeIdle(s settings, r results) {
	count := s.scaled(500)
	// From C's memory: a pointer into Go's may not be kept after the call.
	memory := (*C.double)(C.malloc(C.size_t(count) * C.sizeof_double))
	defer C.free(unsafe.Pointer(memory))
	if C.start_plain_thread(C.long(count), memory) != 0 {
		fail("wake-idle: no thread")
	}
	<-finished // parked, and not blocked in a C call: otherwise the main goroutine would keep a P
	samples := make([]float64, count)
	copy(samples, unsafe.Slice((*float64)(unsafe.Pointer(memory)), count))
	r.add("p50", percentile(samples, 0.50), "us")
	r.add("p99", percentile(samples, 0.99), "us")
}
