// rate_limiter.cpp - a bucket of tokens: bursts of five, then one every millisecond.
#include <cstdio>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

class rate_limiter {
public:
    rate_limiter(int burst, std::chrono::nanoseconds every)
        : tokens_(burst), filler_(dunlin::spawn([this, every] { fill(every); })) {
        for (int i = 0; i < burst; ++i) tokens_.try_send(token());
    }
    ~rate_limiter() { stop_.cancel(); }  // the destructor of filler_ waits

    // Waits for its turn, or until the context is done.
    void wait(const dunlin::context& ctx = {}) { tokens_.recv(ctx); }
    bool try_now() { return tokens_.try_recv().has_value(); }

private:
    struct token {};

    void fill(std::chrono::nanoseconds every) {
        dunlin::ticker tick(every);
        for (bool on = true; on;) {
            dunlin::select(dunlin::on_recv(tick.channel(), [this] { tokens_.try_send(token()); }),
                dunlin::on_done(stop_, [&] { on = false; }));
        }
    }

    dunlin::chan<token> tokens_;
    dunlin::cancellable stop_ = dunlin::with_cancel(dunlin::context::background());
    dunlin::task<void> filler_;
};

int main() {
    return dunlin::run([] {
        rate_limiter limiter(5, 1ms);
        const auto begin = dunlin::clock::now();
        int at_once = 0;
        while (limiter.try_now()) ++at_once;
        for (int i = 0; i < 10; ++i) limiter.wait();
        const double took_ms = std::chrono::duration<double, std::milli>(dunlin::clock::now() - begin).count();
        std::printf("%d requests at once, 10 more took %.1f ms\n", at_once, took_ms);
        return at_once >= 5 && took_ms >= 8 ? 0 : 1;
    });
}
