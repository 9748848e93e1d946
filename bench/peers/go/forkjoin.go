package main

import (
	"sync"
	"time"
)

// The shapes are those of the public suite github.com/tzcnt/runtime-benchmarks; `suite-*` has its sizes too.

func init() {
	workloads["fib"] = func(s settings, r results) { fib(s, r, fibUnbuffered) }
	workloads["fib-buffered"] = func(s settings, r results) { fib(s, r, fibBuffered) }
	workloads["fib-waitgroup"] = func(s settings, r results) { fib(s, r, fibWaitGroup) }
	workloads["skynet-tg"] = func(s settings, r results) { skynet(s, r, skynetWaitGroup) }
	workloads["skynet-buffered"] = func(s settings, r results) {
		skynet(s, r, func(number, leaves int) int {
			result := make(chan int, 1)
			skynetBuffered(result, number, leaves)
			return <-result
		})
	}
	workloads["nqueens"] = func(s settings, r results) { nqueens(s, r, nqueensWaitGroup) }
	workloads["nqueens-buffered"] = func(s settings, r results) { nqueens(s, r, nqueensBuffered) }
	workloads["matmul"] = matmul
	workloads["suite-nqueens"] = suiteNqueens
	workloads["suite-matmul"] = suiteMatmul
}

func fib(s settings, r results, form func(int) int) {
	n, expected := 30, 832040
	if s.quick {
		n, expected = 25, 75025
	}
	r.add("time", nsPerOperation(1, func() {
		if got := form(n); got != expected {
			fail("fib(%d) = %d, expected %d", n, got, expected)
		}
	})/1e6, "ms")
}

func fibUnbuffered(n int) int {
	if n < 2 {
		return n
	}
	a := make(chan int)
	go func() { a <- fibUnbuffered(n - 1) }()
	b := fibUnbuffered(n - 2)
	return <-a + b
}

func fibBuffered(n int) int {
	if n < 2 {
		return n
	}
	a := make(chan int, 1)
	go func() { a <- fibBuffered(n - 1) }()
	b := fibBuffered(n - 2)
	return <-a + b
}

func fibWaitGroup(n int) int {
	if n < 2 {
		return n
	}
	var wg sync.WaitGroup
	var a int
	wg.Add(1)
	go func() {
		a = fibWaitGroup(n - 1)
		wg.Done()
	}()
	b := fibWaitGroup(n - 2)
	wg.Wait()
	return a + b
}

func skynet(s settings, r results, form func(number, leaves int) int) {
	leaves := s.scaled(1000000)
	expected := leaves * (leaves - 1) / 2
	r.add("time", nsPerOperation(1, func() {
		if got := form(0, leaves); got != expected {
			fail("skynet of %d leaves = %d, expected %d", leaves, got, expected)
		}
	})/1e6, "ms")
}

const skynetBranches = 10

func skynetWaitGroup(number, leaves int) int {
	if leaves == 1 {
		return number
	}
	var wg sync.WaitGroup
	var results [skynetBranches]int
	wg.Add(skynetBranches)
	part := leaves / skynetBranches
	for i := 0; i < skynetBranches; i++ {
		i := i
		go func() {
			results[i] = skynetWaitGroup(number+i*part, part)
			wg.Done()
		}()
	}
	wg.Wait()
	sum := 0
	for _, result := range results {
		sum += result
	}
	return sum
}

func skynetBuffered(result chan<- int, number, leaves int) {
	if leaves == 1 {
		result <- number
		return
	}
	results := make(chan int, skynetBranches)
	part := leaves / skynetBranches
	for i := 0; i < skynetBranches; i++ {
		go skynetBuffered(results, number+i*part, part)
	}
	sum := 0
	for i := 0; i < skynetBranches; i++ {
		sum += <-results
	}
	result <- sum
}

const boardMax = 14

// board is the row of the queen in each column.
type board [boardMax]int8

func (b *board) free(column, row int) bool {
	for c := 0; c < column; c++ {
		queen, distance := int(b[c]), column-c
		if queen == row || queen == row-distance || queen == row+distance {
			return false
		}
	}
	return true
}

func nqueens(s settings, r results, form func(queens board, column, size int) int) {
	size, expected := 12, 14200
	if s.quick {
		size, expected = 10, 724
	}
	r.add("time", nsPerOperation(1, func() {
		if got := form(board{}, 0, size); got != expected {
			fail("nqueens(%d) = %d, expected %d", size, got, expected)
		}
	})/1e6, "ms")
}

func nqueensWaitGroup(queens board, column, size int) int {
	if column == size {
		return 1
	}
	var wg sync.WaitGroup
	var results [boardMax]int
	for row := 0; row < size; row++ {
		if !queens.free(column, row) {
			continue
		}
		next, result := queens, &results[row]
		next[column] = int8(row)
		wg.Add(1)
		go func() {
			*result = nqueensWaitGroup(next, column+1, size)
			wg.Done()
		}()
	}
	wg.Wait()
	sum := 0
	for _, result := range results {
		sum += result
	}
	return sum
}

func nqueensBuffered(queens board, column, size int) int {
	if column == size {
		return 1
	}
	results := make(chan int, boardMax)
	children := 0
	for row := 0; row < size; row++ {
		if !queens.free(column, row) {
			continue
		}
		next := queens
		next[column] = int8(row)
		children++
		go func() { results <- nqueensBuffered(next, column+1, size) }()
	}
	sum := 0
	for ; children > 0; children-- {
		sum += <-results
	}
	return sum
}

// product is a square part of three matrices whose rows are stride long, from the start of each slice: c += a * b.
type product struct {
	a, b, c      []int32
	size, stride int
}

func (p product) small() {
	for i := 0; i < p.size; i++ {
		c := p.c[i*p.stride : i*p.stride+p.size]
		for k := 0; k < p.size; k++ {
			factor := p.a[i*p.stride+k]
			b := p.b[k*p.stride : k*p.stride+p.size]
			for j := range c {
				c[j] += factor * b[j]
			}
		}
	}
}

// quarter is that of c in row and column (0 or 1), as far as column and row `inner` of a's and b's quarters go.
func (p product) quarter(row, column, inner int) product {
	half := p.size / 2
	down := half * p.stride
	return product{p.a[row*down+inner*half:], p.b[inner*down+column*half:], p.c[row*down+column*half:], half, p.stride}
}

const matmulSmallSize = 32

func multiply(whole product) {
	if whole.size <= matmulSmallSize {
		whole.small()
		return
	}
	// Two groups one after the other, so that no two goroutines add to one quarter at a time.
	for inner := 0; inner < 2; inner++ {
		var wg sync.WaitGroup
		wg.Add(4)
		for row := 0; row < 2; row++ {
			for column := 0; column < 2; column++ {
				part := whole.quarter(row, column, inner)
				go func() {
					multiply(part)
					wg.Done()
				}()
			}
		}
		wg.Wait()
	}
}

func matmul(s settings, r results) {
	size := 1024
	if s.quick {
		size = 256
	}
	a, b, c := make([]int32, size*size), make([]int32, size*size), make([]int32, size*size)
	for i := range a {
		a[i], b[i] = 1, 1
	}
	r.add("time", nsPerOperation(1, func() {
		for i := range c {
			c[i] = 0
		}
		multiply(product{a, b, c, size, size})
		for _, cell := range c {
			if int(cell) != size {
				fail("matmul: wrong product")
			}
		}
	})/1e6, "ms")
}

// What follows is as in the suite: its sizes, a run that does not count, and one that does. Its fib and skynet are left out:
// so many goroutines wait for each other at once that they need many gigabytes.

func measureOnce(r results, run func()) {
	start := time.Now()
	run()
	r.add("time", float64(time.Since(start))/1e6, "ms")
}

func suiteNqueens(s settings, r results) {
	size, expected := 14, 365596
	if s.quick {
		size, expected = 11, 2680
	}
	run := func() { expect("suite-nqueens", nqueensWaitGroup(board{}, 0, size), expected) }
	run()
	measureOnce(r, run)
}

// suiteMatmul: the suite makes the matrices within the time that it measures, and checks the product after it.
func suiteMatmul(s settings, r results) {
	size := 2048
	if s.quick {
		size = 512
	}
	var c []int32
	run := func() {
		a, b := make([]int32, size*size), make([]int32, size*size)
		c = make([]int32, size*size)
		for i := range a {
			a[i], b[i] = 1, 1
		}
		multiply(product{a, b, c, size, size})
	}
	check := func() {
		for _, cell := range c {
			expect("suite-matmul", int(cell), size)
		}
	}
	run()
	check()
	measureOnce(r, run)
	check()
}
