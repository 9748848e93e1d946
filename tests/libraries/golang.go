// A library with another scheduler in it, for golang.cpp.
package main

import "C"

import (
	"runtime"
	"sort"
	"time"
)

func deep(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + deep(n-1)
}

//export GoVersion
func GoVersion() *C.char { return C.CString(runtime.Version()) }

//export GoWork
func GoWork(number C.int) C.int {
	results := make(chan int)
	for i := 0; i < 10; i++ {
		go func() {
			numbers := make([]int, 2000)
			for k := range numbers {
				numbers[k] = (k * 7919) % 2003
			}
			sort.Ints(numbers)
			time.Sleep(time.Millisecond)
			results <- deep(20000) - 20000 + i
		}()
	}
	sum := 0
	for i := 0; i < 10; i++ {
		sum += <-results
	}
	if number%50 == 0 {
		runtime.GC()
	}
	func() {
		defer func() { _ = recover() }()
		var p *int
		*p = 1
		sum = -1000
	}()
	return C.int(sum-45) + number
}

func main() {}
