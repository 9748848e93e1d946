package main

import (
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The same two limits as in bench/measure.h.
const (
	batchesMin   = 2
	measuredTime = 300 * time.Millisecond
)

// nsPerOperation runs batch once unmeasured and then until both limits are met; the median of the batches counts.
func nsPerOperation(operations int, batch func()) float64 {
	batch()
	var samples []float64
	for total := time.Duration(0); len(samples) < batchesMin || total < measuredTime; {
		start := time.Now()
		batch()
		took := time.Since(start)
		total += took
		samples = append(samples, float64(took.Nanoseconds())/float64(operations))
	}
	return percentile(samples, 0.5)
}

// percentile sorts samples. The value between two neighbours is interpolated.
func percentile(samples []float64, q float64) float64 {
	sort.Float64s(samples)
	position := q * float64(len(samples)-1)
	low := int(position)
	if low+1 == len(samples) {
		return samples[low]
	}
	return samples[low] + (position-float64(low))*(samples[low+1]-samples[low])
}

// statusBytes reads a field of /proc/self/status that is given in kB, for example VmRSS, VmHWM or VmPTE.
func statusBytes(field string) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail("%v", err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(line, field+":") {
			kilobytes, err := strconv.Atoi(strings.Fields(line)[1])
			if err != nil {
				fail("/proc/self/status: %s: %v", field, err)
			}
			return float64(kilobytes) * 1024
		}
	}
	fail("/proc/self/status has no field %s", field)
	return 0
}

// cpuSeconds is the user and system time of this process up to now.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail("getrusage: %v", err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

// splitmix64 is the random sequence that both languages use, so that both sleep for the same times.
type splitmix64 struct {
	state uint64
}

func (r *splitmix64) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
