package main

import "sync"

func init() {
	workloads["ping-pong"] = pingPong
	workloads["buffered-1-1"] = func(s settings, r results) { buffered(s, r, 1, 1) }
	workloads["buffered-4-4"] = func(s settings, r results) { buffered(s, r, 4, 4) }
	workloads["select4"] = func(s settings, r results) { selectOf4(s, r, 0) }
	workloads["select4-buffered"] = func(s settings, r results) { selectOf4(s, r, bufferSize) }
	workloads["ring"] = ring
	workloads["skynet"] = skynetChannels
	workloads["prime-sieve"] = primeSieve
}

func sumBelow(n int) int { return n * (n - 1) / 2 }

func expect(what string, got, expected int) {
	if got != expected {
		fail("%s: %d, expected %d", what, got, expected)
	}
}

func pingPong(s settings, r results) {
	rounds := s.scaled(200000)
	r.add("time", nsPerOperation(rounds, func() {
		request, reply := make(chan int), make(chan int)
		go func() {
			for n := range request {
				reply <- n + 1
			}
			close(reply)
		}()
		sum := 0
		for i := 0; i < rounds; i++ {
			request <- i
			sum += <-reply
		}
		close(request)
		if _, more := <-reply; more {
			fail("ping-pong: a reply too many")
		}
		expect("ping-pong", sum, sumBelow(rounds)+rounds)
	}), "ns")
}

const bufferSize = 128

func buffered(s settings, r results, senders, receivers int) {
	each := s.scaled(1000000) / senders
	r.add("time", nsPerOperation(senders*each, func() {
		c := make(chan int, bufferSize)
		var sending, receiving sync.WaitGroup
		sending.Add(senders)
		for i := 0; i < senders; i++ {
			go func() {
				for n := 0; n < each; n++ {
					c <- n
				}
				sending.Done()
			}()
		}
		sums := make([]int, receivers)
		receiving.Add(receivers)
		for i := range sums {
			result := &sums[i]
			go func() {
				sum := 0
				for n := range c {
					sum += n
				}
				*result = sum
				receiving.Done()
			}()
		}
		sending.Wait()
		close(c)
		receiving.Wait()
		sum := 0
		for _, part := range sums {
			sum += part
		}
		expect("buffered", sum, senders*sumBelow(each))
	}), "ns")
}

func selectOf4(s settings, r results, capacity int) {
	each := s.scaled(200000) / 4
	r.add("time", nsPerOperation(4*each, func() {
		a, b, c, d := make(chan int, capacity), make(chan int, capacity), make(chan int, capacity), make(chan int, capacity)
		for _, out := range []chan int{a, b, c, d} {
			out := out
			go func() {
				for n := 0; n < each; n++ {
					out <- n
				}
			}()
		}
		sum := 0
		for i := 0; i < 4*each; i++ {
			select {
			case n := <-a:
				sum += n
			case n := <-b:
				sum += n
			case n := <-c:
				sum += n
			case n := <-d:
				sum += n
			}
		}
		expect("select4", sum, 4*sumBelow(each))
	}), "ns")
}

// ring is the "threadring" of the Computer Language Benchmarks Game: a number goes round and loses one at each step.
func ring(s settings, r results) {
	const length = 503
	hops := s.scaled(200000)
	links := make([]chan int, length)
	for i := range links {
		links[i] = make(chan int)
	}
	winner := make(chan int)
	var members sync.WaitGroup
	members.Add(length)
	for i := range links {
		in, out, number := links[i], links[(i+1)%length], i+1
		go func() {
			for token := range in {
				if token == 0 {
					winner <- number
				} else {
					out <- token - 1
				}
			}
			members.Done()
		}()
	}
	ns := nsPerOperation(hops, func() {
		links[0] <- hops
		expect("ring", <-winner, hops%length+1)
	})
	for _, link := range links {
		close(link)
	}
	members.Wait()
	r.add("time", ns, "ns")
}

// skynetNode is as in github.com/atemerev/skynet.
func skynetNode(c chan int, number, size, div int) {
	if size == 1 {
		c <- number
		return
	}
	results := make(chan int)
	sum := 0
	for i := 0; i < div; i++ {
		go skynetNode(results, number+i*(size/div), size/div, div)
	}
	for i := 0; i < div; i++ {
		sum += <-results
	}
	c <- sum
}

func skynetChannels(s settings, r results) {
	leaves := s.scaled(1000000)
	if s.n != 0 {
		leaves = s.n
	}
	r.add("time", nsPerOperation(1, func() {
		c := make(chan int)
		go skynetNode(c, 0, leaves, 10)
		expect("skynet", <-c, sumBelow(leaves))
	})/1e6, "ms")
	r.add("peak-rss", statusBytes("VmHWM")/1e6, "MB")
}

// numbersFrom2To and withoutMultiples are the sieve of the Go tour, whose generator ends after the last prime that is
// asked for, so that all end.
func numbersFrom2To(last int) <-chan int {
	out := make(chan int)
	go func() {
		for n := 2; n <= last; n++ {
			out <- n
		}
		close(out)
	}()
	return out
}

func withoutMultiples(in <-chan int, prime int) <-chan int {
	out := make(chan int)
	go func() {
		for n := range in {
			if n%prime != 0 {
				out <- n
			}
		}
		close(out)
	}()
	return out
}

func primeSieve(s settings, r results) {
	lastPrime, expectedPrimes, expectedSum := 7919, 1000, 3682913
	if s.quick {
		lastPrime, expectedPrimes, expectedSum = 541, 100, 24133
	}
	r.add("time", nsPerOperation(1, func() {
		in := numbersFrom2To(lastPrime)
		primes, sum := 0, 0
		for {
			prime, more := <-in
			if !more {
				break
			}
			primes++
			sum += prime
			in = withoutMultiples(in, prime)
		}
		expect("prime-sieve: primes", primes, expectedPrimes)
		expect("prime-sieve: sum", sum, expectedSum)
	})/1e6, "ms")
}
