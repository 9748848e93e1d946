// prime_sieve.cpp - the concurrent prime sieve: a chain of goroutines, each of which lets through what its prime does
// not divide.
#include <cstdio>

#include <dunlin/dunlin.hpp>

int main() {
    return dunlin::run([] {
        constexpr int count = 500;
        auto [ctx, cancel] = dunlin::with_cancel(dunlin::context::background());

        // Every goroutine ends when the context does.
        const auto filtered = [ctx = ctx](dunlin::receiver<int> in, int prime) {
            dunlin::chan<int> out;
            dunlin::go([=] {
                try {
                    for (;;) {
                        const int n = *in.recv(ctx);
                        if (n % prime != 0) out.send(n, ctx);
                    }
                } catch (const dunlin::context_cancelled&) {
                }
            });
            return dunlin::receiver<int>(out);
        };

        dunlin::chan<int> numbers;
        dunlin::go([=, ctx = ctx] {
            try {
                for (int n = 2;; ++n) numbers.send(n, ctx);
            } catch (const dunlin::context_cancelled&) {
            }
        });
        dunlin::receiver<int> in = numbers;
        int prime = 0;
        for (int i = 0; i < count; ++i) {
            prime = *in.recv();
            in = filtered(in, prime);
        }
        const std::size_t chain = dunlin::runtime::num_goroutines();
        cancel();
        std::printf("prime number %d is %d, found by %zu goroutines\n", count, prime, chain);
        return prime == 3571 ? 0 : 1;
    });
}
