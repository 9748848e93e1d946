// The writer must be a thread that is none of Go's, as for wake-idle, so this file is in the second program too.

package main

/*
#cgo LDFLAGS: -pthread
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long pipe_now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static atomic_llong pipe_ran_at;
static void note_pipe_read(void) { atomic_store(&pipe_ran_at, pipe_now_ns()); }

static int pipe_end;
static long pipe_count;
static double *pipe_samples_us;

static void *write_pipe(void *unused) {
	(void)unused;
	uint64_t random = 1;
	for (long i = 0; i < pipe_count; ++i) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		nanosleep(&(struct timespec){.tv_nsec = 200000 + (long)((random >> 33) % 800000)}, 0);
		atomic_store(&pipe_ran_at, 0);
		const long long written_at = pipe_now_ns();
		if (write(pipe_end, "", 1) != 1) abort();
		while (atomic_load(&pipe_ran_at) == 0) nanosleep(&(struct timespec){.tv_nsec = 100000}, 0);
		pipe_samples_us[i] = (atomic_load(&pipe_ran_at) - written_at) / 1e3;
	}
	close(pipe_end);
	return 0;
}

static int start_pipe_writer(int fd, long count, double *samples) {
	pthread_t thread;
	pipe_end = fd;
	pipe_count = count;
	pipe_samples_us = samples;
	const int failed = pthread_create(&thread, 0, write_pipe, 0);
	return failed ? failed : pthread_detach(thread);
}
*/
import "C"

import (
	"os"
	"syscall"
	"unsafe"
)

func init() {
	workloads["pipe-wake"] = pipeWake
}

func pipeWake(s settings, r results) {
	count := s.scaled(1000)
	memory := (*C.double)(C.malloc(C.size_t(count) * C.sizeof_double))
	defer C.free(unsafe.Pointer(memory))
	ends := make([]int, 2)
	if err := syscall.Pipe(ends); err != nil {
		fail("%v", err)
	}
	if err := syscall.SetNonblock(ends[0], true); err != nil {
		fail("%v", err)
	}
	reader := os.NewFile(uintptr(ends[0]), "pipe")
	if C.start_pipe_writer(C.int(ends[1]), C.long(count), memory) != 0 {
		fail("pipe-wake: no thread")
	}
	for buffer := make([]byte, 1); ; {
		if n, _ := reader.Read(buffer); n != 1 {
			break
		}
		C.note_pipe_read()
	}
	samples := make([]float64, count)
	copy(samples, unsafe.Slice((*float64)(unsafe.Pointer(memory)), count))
	r.add("p50", percentile(samples, 0.50), "us")
	r.add("p99", percentile(samples, 0.99), "us")
}
