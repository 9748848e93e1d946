package main

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

func init() {
	workloads["start-up"] = startUp
}

// startUp starts the empty program that lies beside this one, again and again: the time until it has ended.
func startUp(s settings, r results) {
	own, err := os.Executable()
	if err != nil {
		fail("%v", err)
	}
	program := filepath.Join(filepath.Dir(own), "go_empty")
	file, err := os.Stat(program)
	if err != nil {
		fail("start-up: %v", err)
	}
	runEmptyUs(program) // from now on the file is in memory
	lives := make([]float64, s.scaled(300))
	for i := range lives {
		lives[i] = runEmptyUs(program)
	}
	r.add("time", percentile(lives, 0.5), "us")
	r.add("size", float64(file.Size())/1e3, "kB")
}

func runEmptyUs(program string) float64 {
	start := time.Now()
	child, err := syscall.ForkExec(program, []string{program}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		fail("start-up: %v", err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(child, &status, 0, nil); err != nil || status != 0 {
		fail("start-up: %v, status %d", err, status)
	}
	return float64(time.Since(start).Nanoseconds()) / 1e3
}
