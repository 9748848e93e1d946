package main

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"
)

// The twins of bench/work_bench.cpp: `go_bench fan-4 --n 200`, where --n is the work of each step in tenths of a
// microsecond and 1 stands for none.
func init() {
	for _, skewed := range []bool{false, true} {
		suffix := ""
		if skewed {
			suffix = "-skewed"
		}
		skewed := skewed
		for _, workers := range []int{2, 4, 8, 16} {
			workers := workers
			workloads[fmt.Sprintf("fan-%d%s", workers, suffix)] = func(s settings, r results) { fan(s, r, workers, skewed) }
		}
		for _, stages := range []int{2, 4} {
			for _, capacity := range []int{0, 1, 16} {
				stages, capacity := stages, capacity
				name := fmt.Sprintf("pipe-%d-%d%s", stages, capacity, suffix)
				workloads[name] = func(s settings, r results) { pipe(s, r, stages, capacity, skewed) }
			}
		}
	}
	workloads["tree"] = tree
	workloads["bounded-pool"] = boundedPool
	workloads["actors"] = actors
	workloads["scatter"] = scatter
}

// ---- work whose length is known: bench/work.h ---------------------------------------------------------------------------

// compute makes no call, and each step needs the one before.
func compute(x uint64, steps int) uint64 {
	for ; steps != 0; steps-- {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// computed is what compute returns, in as many squarings as the number of steps has digits.
func computed(x uint64, steps int) uint64 {
	factor, term := uint64(6364136223846793005), uint64(1442695040888963407)
	for ; steps != 0; steps >>= 1 {
		if steps&1 != 0 {
			x = x*factor + term
		}
		term *= factor + 1
		factor *= factor
	}
	return x
}

var calibrationResult uint64 // kept, so that the work is not in vain

// stepsPerUs is how many steps of compute take a microsecond: the best of many tries.
func stepsPerUs() float64 {
	const tries, steps = 100, 200000 // about 0.2 ms each
	best := time.Duration(0)
	for i := 0; i < tries; i++ {
		start := time.Now()
		calibrationResult = compute(calibrationResult, steps)
		if took := time.Since(start); i == 0 || took < best {
			best = took
		}
	}
	return steps / (float64(best.Nanoseconds()) / 1e3)
}

// pieces is how long each piece of work of a workload is: all alike, or one in ten, chosen from a fixed seed, takes ten
// times as long.
type pieces struct {
	length  float64 // in microseconds
	steps   int
	factors []int
}

func newPieces(us float64, skewed bool) *pieces {
	p := &pieces{us, int(us * stepsPerUs()), make([]int, 1000)}
	random := splitmix64{state: 1}
	for i := range p.factors {
		p.factors[i] = 1
		if skewed && random.next()%10 == 0 {
			p.factors[i] = 10
		}
	}
	return p
}

func (p *pieces) factor(piece int) int { return p.factors[piece%len(p.factors)] }

func (p *pieces) us(piece int) float64 { return p.length * float64(p.factor(piece)) }

func (p *pieces) meanUs() float64 {
	sum := 0.0
	for _, factor := range p.factors {
		sum += p.length * float64(factor)
	}
	return sum / float64(len(p.factors))
}

func (p *pieces) work(x uint64, piece int) uint64 { return compute(x, p.steps*p.factor(piece)) }

func (p *pieces) worked(x uint64, piece int) uint64 { return computed(x, p.steps*p.factor(piece)) }

// ---- what a batch has to come to ----------------------------------------------------------------------------------------

func stepUs(s settings) float64 {
	if s.size() == 1 {
		return 0
	}
	return float64(s.size()) / 10
}

// processors is as many as can run at the same time.
func processors() float64 { return math.Min(float64(runtime.GOMAXPROCS(0)), float64(runtime.NumCPU())) }

type expectation struct {
	idealUs float64 // if nothing but the work took time
	sum     uint64
}

// operationsOf is so many that a batch takes 30 ms, or a little more if least of them do.
func operationsOf(s settings, idealUs, handOvers float64, least int) int {
	if operations := s.scaled(int(30000 / math.Max(idealUs, 0.1*handOvers))); operations > least {
		return operations
	}
	return least
}

func (e expectation) expectSum(what string, got uint64) {
	if got != e.sum {
		fail("%s: %d, expected %d", what, got, e.sum)
	}
}

func report(r results, ns float64, e expectation, operations int) {
	r.add("time", ns/1e3, "us")
	if e.idealUs > 0 {
		r.add("of-ideal", ns/1e3*float64(operations)/e.idealUs, "x")
	}
}

// ---- sweeps: fan-out and pipelines --------------------------------------------------------------------------------------

func ofFan(p *pieces, workers, requests int) expectation {
	var e expectation
	for i := 0; i < requests; i++ {
		total, longest := 0.0, 0.0
		for job := i * workers; job < (i+1)*workers; job++ {
			total += p.us(job)
			longest = math.Max(longest, p.us(job))
			e.sum += p.worked(uint64(job), job)
		}
		e.idealUs += math.Max(total/processors(), longest)
	}
	return e
}

func fan(s settings, r results, workers int, skewed bool) {
	p := newPieces(stepUs(s), skewed)
	least := 2
	if skewed {
		least = 25
	}
	requests := operationsOf(s, p.meanUs()*float64(workers)/processors(), 2*float64(workers), least)
	e := ofFan(p, workers, requests)
	jobs, answers := make(chan int), make(chan uint64)
	var working sync.WaitGroup
	working.Add(workers)
	for i := 0; i < workers; i++ {
		go func() {
			for job := range jobs {
				answers <- p.work(uint64(job), job)
			}
			working.Done()
		}()
	}
	ns := nsPerOperation(requests, func() {
		sum := uint64(0)
		for i := 0; i < requests; i++ {
			for w := 0; w < workers; w++ {
				jobs <- i*workers + w
			}
			for w := 0; w < workers; w++ {
				sum += <-answers
			}
		}
		e.expectSum("fan", sum)
	})
	close(jobs)
	working.Wait()
	report(r, ns, e, requests)
}

func ofPipe(p *pieces, stages, values int) expectation {
	var e expectation
	total := 0.0
	free := make([]float64, stages) // when each stage can take its next value
	for i := 0; i < values; i++ {
		now, value := free[0], uint64(i)
		for stage := 0; stage < stages; stage++ {
			piece := i*stages + stage
			if stage > 0 {
				now = math.Max(now, free[stage])
				free[stage-1] = now
			}
			now += p.us(piece)
			total += p.us(piece)
			value = p.worked(value, piece)
		}
		free[stages-1] = now
		e.sum += value
	}
	e.idealUs = math.Max(total/processors(), free[stages-1])
	return e
}

func pipe(s settings, r results, stages, capacity int, skewed bool) {
	p := newPieces(stepUs(s), skewed)
	values := operationsOf(s, p.meanUs()*float64(stages)/processors(), float64(stages-1), 100)
	e := ofPipe(p, stages, values)
	ns := nsPerOperation(values, func() {
		links := make([]chan uint64, stages-1)
		for i := range links {
			links[i] = make(chan uint64, capacity)
		}
		var working sync.WaitGroup
		working.Add(stages - 1)
		sum := uint64(0)
		for stage := 1; stage < stages; stage++ {
			stage := stage
			go func() {
				last := stage == stages-1
				piece := stage
				for value := range links[stage-1] {
					value = p.work(value, piece)
					piece += stages
					if last {
						sum += value
					} else {
						links[stage] <- value
					}
				}
				if !last {
					close(links[stage])
				}
				working.Done()
			}()
		}
		for i := 0; i < values; i++ {
			links[0] <- p.work(uint64(i), i*stages)
		}
		close(links[0])
		working.Wait()
		e.expectSum("pipe", sum)
	})
	report(r, ns, e, values)
}

// ---- other shapes -------------------------------------------------------------------------------------------------------

func answerRequests(s settings, r results, totalUs, chainUs float64, answer uint64, request func() uint64) {
	idealUs := math.Max(totalUs/processors(), chainUs)
	requests := operationsOf(s, idealUs, 0, 2)
	e := expectation{idealUs * float64(requests), answer}
	ns := nsPerOperation(requests, func() {
		for i := 0; i < requests; i++ {
			e.expectSum("an answer", request())
		}
	})
	report(r, ns, e, requests)
}

type treeJob struct {
	number uint64
	leaves int
}

func treeWorker(p *pieces, jobs chan treeJob, answers chan uint64, leaves int) {
	if leaves == 1 {
		for job := range jobs {
			answers <- p.work(job.number, 0)
		}
		return
	}
	below, halves := make(chan treeJob), make(chan uint64)
	var working sync.WaitGroup
	working.Add(2)
	for i := 0; i < 2; i++ {
		go func() {
			treeWorker(p, below, halves, leaves/2)
			working.Done()
		}()
	}
	for job := range jobs {
		below <- treeJob{job.number, job.leaves / 2}
		below <- treeJob{job.number + uint64(job.leaves/2), job.leaves / 2}
		answers <- <-halves + <-halves
	}
	close(below)
	working.Wait()
}

func tree(s settings, r results) {
	const leaves, us = 16, 20
	p := newPieces(us, false)
	answer := uint64(0)
	for i := uint64(0); i < leaves; i++ {
		answer += p.worked(i, 0)
	}
	jobs, answers, ended := make(chan treeJob), make(chan uint64), make(chan bool)
	go func() {
		treeWorker(p, jobs, answers, leaves)
		close(ended)
	}()
	answerRequests(s, r, us*leaves, us, answer, func() uint64 {
		jobs <- treeJob{0, leaves}
		return <-answers
	})
	close(jobs)
	<-ended
}

// boundedPool: a channel with as many places is the usual semaphore of Go.
func boundedPool(s settings, r results) {
	const jobs, atOnce, us = 64, 4, 20
	p := newPieces(us, false)
	answer := uint64(0)
	for i := uint64(0); i < jobs; i++ {
		answer += p.worked(i, 0)
	}
	answerRequests(s, r, us*jobs, us*jobs/atOnce, answer, func() uint64 {
		var done [jobs]uint64
		places := make(chan struct{}, atOnce)
		var working sync.WaitGroup
		working.Add(jobs)
		for i := 0; i < jobs; i++ {
			i := i
			go func() {
				places <- struct{}{}
				done[i] = p.work(uint64(i), 0)
				<-places
				working.Done()
			}()
		}
		working.Wait()
		sum := uint64(0)
		for _, value := range done {
			sum += value
		}
		return sum
	})
}

type letter struct {
	value uint64
	hops  int // that are left
}

func actors(s settings, r results) {
	const count, hops, us = 16, 4, 5
	p := newPieces(us, false)
	answer := uint64(0)
	for i := uint64(0); i < count; i++ {
		value := i
		for hop := 0; hop < hops; hop++ {
			value = p.worked(value, 0)
		}
		answer += value
	}
	var mailboxes [count]chan letter
	for i := range mailboxes {
		mailboxes[i] = make(chan letter, 16)
	}
	arrived := make(chan uint64)
	var acting sync.WaitGroup
	acting.Add(count)
	for i := range mailboxes {
		in, next := mailboxes[i], mailboxes[(i*5+3)%count]
		go func() {
			for l := range in {
				value := p.work(l.value, 0)
				if l.hops > 1 {
					next <- letter{value, l.hops - 1}
				} else {
					arrived <- value
				}
			}
			acting.Done()
		}()
	}
	answerRequests(s, r, us*hops*count, us*hops, answer, func() uint64 {
		for i, mailbox := range mailboxes {
			mailbox <- letter{uint64(i), hops}
		}
		sum := uint64(0)
		for range mailboxes {
			sum += <-arrived
		}
		return sum
	})
	for _, mailbox := range mailboxes {
		close(mailbox)
	}
	acting.Wait()
}

func scatter(s settings, r results) {
	const workers = 8
	var work [workers]*pieces
	total, longest, answer := 0.0, 0.0, uint64(0)
	for i := range work {
		longest = 10 * float64(i+1)
		total += longest
		work[i] = newPieces(longest, false)
		answer += work[i].worked(uint64(i), 0)
	}
	var requests [workers]chan uint64
	answers := make(chan uint64, workers)
	var working sync.WaitGroup
	working.Add(workers)
	for i := range requests {
		requests[i] = make(chan uint64)
		p, in := work[i], requests[i]
		go func() {
			for value := range in {
				answers <- p.work(value, 0)
			}
			working.Done()
		}()
	}
	answerRequests(s, r, total, longest, answer, func() uint64 {
		for i, request := range requests {
			request <- uint64(i)
		}
		sum := uint64(0)
		for range requests {
			sum += <-answers
		}
		return sum
	})
	for _, request := range requests {
		close(request)
	}
	working.Wait()
}
