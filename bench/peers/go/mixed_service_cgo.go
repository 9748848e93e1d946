// The library that blocks its thread is C's, as in any program that needs one, so this file is in the second program,
// see wake_idle_cgo.go. bench/load/mixed_load.c says how a message looks.

package main

/*
#include <stdint.h>
#include <time.h>

static uint64_t call_library(uint64_t value, uint32_t us) {
	struct timespec t = {0, us * 1000l};
	nanosleep(&t, 0);
	return ~value;
}
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"time"
)

const serviceTableSize = 4096

const (
	requestLookup  = 0
	requestBurst   = 1
	requestLibrary = 2
)

func init() {
	workloads["mixed-service"] = mixedService
	workloads["open-loop"] = openLoop
}

func serveMixed(connection net.Conn, table []uint64) {
	defer connection.Close()
	order := binary.LittleEndian
	message := make([]byte, 64)
	for {
		if _, err := io.ReadFull(connection, message); err != nil {
			if err != io.EOF {
				fail("%v", err)
			}
			return
		}
		kind, amount, value := order.Uint32(message[8:]), order.Uint32(message[12:]), order.Uint64(message[16:])
		switch kind {
		case requestLookup:
			value = table[value%serviceTableSize]
		case requestBurst:
			value = compute(value, int(amount))
		case requestLibrary:
			value = uint64(C.call_library(C.uint64_t(value), C.uint32_t(amount)))
		default:
			fail("mixed-service: a request of no kind")
		}
		order.PutUint64(message[16:], value)
		if _, err := connection.Write(message); err != nil {
			fail("%v", err)
		}
	}
}

// serviceHog computes in units of about 0.1 ms for ever. A cache line each, so that counting disturbs no other.
type serviceHog struct {
	units int64
	value uint64 // kept, so that the work is not in vain
	_     [48]byte
}

func (h *serviceHog) work() {
	for {
		h.value = compute(h.value, 100000)
		atomic.AddInt64(&h.units, 1)
	}
}

// startService serves until the program ends, with a goroutine for each connection.
func startService() net.Listener {
	table := make([]uint64, serviceTableSize)
	random := splitmix64{1}
	for i := range table {
		table[i] = random.next()
	}
	listener := listenOnLoopback()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go serveMixed(connection, table)
		}
	}()
	return listener
}

// mixedService: beside the server one goroutine for each P that never stops computing.
func mixedService(s settings, r results) {
	procs := runtime.GOMAXPROCS(0)
	listener := startService()
	hogs := make([]serviceHog, procs)
	for i := range hogs {
		go hogs[i].work()
	}
	start := time.Now()
	seconds := "4"
	if s.quick {
		seconds = "0.5"
	}
	words := []string{"--connections", "256", "--rate", fmt.Sprint(2000 * procs), "--seconds", seconds}
	if procs > 1 {
		words = append(words, "--free")
	}
	runLoad(r, "mixed", listener.Addr(), words...)
	units := int64(0)
	for i := range hogs {
		units += atomic.LoadInt64(&hogs[i].units)
	}
	r.add("hogs", time.Since(start).Seconds()*1e6*float64(procs)/float64(units), "us")
}

func openLoop(s settings, r results) {
	listener := startService()
	words := []string{"--connections", "64", "--seconds", "1"}
	if s.quick {
		words[3] = "0.2"
	}
	if runtime.GOMAXPROCS(0) > 1 {
		words = append(words, "--free")
	}
	runLoad(r, "open", listener.Addr(), words...)
}
