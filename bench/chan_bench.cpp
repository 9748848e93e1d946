// chan_bench.cpp - values handed from goroutine to goroutine over channels, and select. Twin: peers/go/chan.go.

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include <dunlin/dunlin.hpp>

#include "measure.h"
#include "registry.h"

namespace bench {
namespace {

void ping_pong(const settings& s, results& r) {
    const long rounds = s.scaled(200'000);
    dunlin::run([&] {
        const double ns = ns_per_operation(rounds, [&] {
            dunlin::chan<long> request;
            dunlin::chan<long> reply;
            dunlin::go([=] {
                for (long n : request) reply.send(n + 1);
                reply.close();
            });
            long sum = 0;
            for (long i = 0; i < rounds; ++i) {
                request.send(i);
                sum += *reply.recv();
            }
            request.close();
            if (reply.recv()) fail("ping-pong: a reply too many");
            expect("ping-pong", sum, sum_below(rounds) + rounds);
        });
        r.add("time", ns, "ns");
    });
}

constexpr std::ptrdiff_t buffer = 128;

void buffered(const settings& s, results& r, long senders, long receivers) {
    const long each = s.scaled(1'000'000) / senders;
    dunlin::run([&] {
        const double ns = ns_per_operation(senders * each, [&] {
            dunlin::chan<long> c(buffer);
            dunlin::wait_group sending;
            for (long i = 0; i < senders; ++i) {
                sending.go([=] {
                    for (long n = 0; n < each; ++n) c.send(n);
                });
            }
            std::vector<long> sums(static_cast<std::size_t>(receivers));
            dunlin::wait_group receiving;
            for (long& result : sums) {
                receiving.go([c, &result] {
                    long sum = 0;
                    for (long n : c) sum += n;
                    result = sum;
                });
            }
            sending.wait();
            c.close();
            receiving.wait();
            long sum = 0;
            for (const long part : sums) sum += part;
            expect("buffered", sum, senders * sum_below(each));
        });
        r.add("time", ns, "ns");
    });
}

void buffered_1_1(const settings& s, results& r) { buffered(s, r, 1, 1); }
void buffered_4_4(const settings& s, results& r) { buffered(s, r, 4, 4); }

void select_of_4(const settings& s, results& r, std::ptrdiff_t capacity) {
    const long each = s.scaled(200'000) / 4;
    dunlin::run([&] {
        const double ns = ns_per_operation(4 * each, [&] {
            const dunlin::chan<long> a(capacity), b(capacity), c(capacity), d(capacity);
            for (const auto& out : {a, b, c, d}) {
                dunlin::go([=] {
                    for (long n = 0; n < each; ++n) out.send(n);
                });
            }
            long sum = 0;
            const auto count = [&sum](std::optional<long> n) { sum += *n; };
            for (long n = 0; n < 4 * each; ++n)
                dunlin::select(dunlin::on_recv(a, count), dunlin::on_recv(b, count), dunlin::on_recv(c, count),
                    dunlin::on_recv(d, count));
            expect("select4", sum, 4 * sum_below(each));
        });
        r.add("time", ns, "ns");
    });
}

void select_unbuffered(const settings& s, results& r) { select_of_4(s, r, 0); }
void select_buffered(const settings& s, results& r) { select_of_4(s, r, buffer); }

/// The "threadring" of the Computer Language Benchmarks Game: a number goes round and loses one at each step.
void ring(const settings& s, results& r) {
    constexpr std::size_t length = 503;
    const long hops = s.scaled(200'000);
    dunlin::run([&] {
        std::vector<dunlin::chan<long>> links(length);
        const dunlin::chan<long> winner;
        dunlin::wait_group members;
        for (std::size_t i = 0; i < length; ++i) {
            members.go([in = links[i], out = links[(i + 1) % length], number = static_cast<long>(i + 1), winner] {
                for (long token : in) {
                    if (token == 0) {
                        winner.send(number);
                    } else {
                        out.send(token - 1);
                    }
                }
            });
        }
        const double ns = ns_per_operation(hops, [&] {
            links[0].send(hops);
            expect("ring", *winner.recv(), hops % static_cast<long>(length) + 1);
        });
        for (const auto& link : links) link.close();
        members.wait();
        r.add("time", ns, "ns");
    });
}

/// As in github.com/atemerev/skynet.
void skynet(const dunlin::chan<long>& c, long number, long size, long div) {
    if (size == 1) {
        c.send(number);
        return;
    }
    const dunlin::chan<long> results;
    long sum = 0;
    for (long i = 0; i < div; ++i) dunlin::go(skynet, results, number + i * (size / div), size / div, div);
    for (long i = 0; i < div; ++i) sum += *results.recv();
    c.send(sum);
}

void skynet_channels(const settings& s, results& r) {
    const long leaves = s.n != 0 ? s.n : s.scaled(1'000'000);
    dunlin::run({.stack_size = dunlin::dense_stack_size}, [&] {
        const double ns = ns_per_operation(1, [&] {
            const dunlin::chan<long> c;
            dunlin::go(skynet, c, 0, leaves, 10);
            expect("skynet", *c.recv(), sum_below(leaves));
        });
        r.add("time", ns / 1e6, "ms");
        r.add("peak-rss", status_bytes("VmHWM") / 1e6, "MB");
    });
}

/// The sieve of the Go tour, whose generator ends after the last prime that is asked for, so that all end.
dunlin::receiver<long> numbers_from_2_to(long last) {
    const dunlin::chan<long> out;
    dunlin::go([=] {
        for (long n = 2; n <= last; ++n) out.send(n);
        out.close();
    });
    return out;
}

dunlin::receiver<long> without_multiples(const dunlin::receiver<long>& in, long prime) {
    const dunlin::chan<long> out;
    dunlin::go([=] {
        for (long n : in) {
            if (n % prime != 0) out.send(n);
        }
        out.close();
    });
    return out;
}

void prime_sieve(const settings& s, results& r) {
    const long last_prime = s.quick ? 541 : 7919;
    dunlin::run([&] {
        const double ns = ns_per_operation(1, [&] {
            dunlin::receiver<long> in = numbers_from_2_to(last_prime);
            long primes = 0;
            long sum = 0;
            while (const std::optional<long> prime = in.recv()) {
                ++primes;
                sum += *prime;
                in = without_multiples(in, *prime);
            }
            expect("prime-sieve: primes", primes, s.quick ? 100 : 1000);
            expect("prime-sieve: sum", sum, s.quick ? 24'133 : 3'682'913);
        });
        r.add("time", ns / 1e6, "ms");
    });
}

const registered all[] = {
    registered({"ping-pong", "a value to another goroutine and back over unbuffered channels", ping_pong}),
    registered({"buffered-1-1", "one sender, one receiver, a channel of capacity 128", buffered_1_1}),
    registered({"buffered-4-4", "four senders, four receivers, a channel of capacity 128", buffered_4_4}),
    registered(
        {"select4", "one goroutine selects over four unbuffered channels with a sender each", select_unbuffered}),
    registered({"select4-buffered", "the same with channels of capacity 128", select_buffered}),
    registered({"ring", "a value goes round 503 goroutines over unbuffered channels", ring}),
    registered({"skynet", "a tree with a million leaves over unbuffered channels", skynet_channels}),
    registered({"prime-sieve", "the first 1000 primes through a chain of filters", prime_sieve}),
};

}  // namespace
}  // namespace bench
