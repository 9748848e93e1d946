// Ports of Go's own tests of tickers and timer channels (time/tick_test.go), under Go's names. In the comments: the
// numbers of the conformance list.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "park/waiter.h"
#include "sched/data/types.h"
#include "support/runtime_test.h"
#include "timer/heap.h"

using namespace std::chrono_literals;

// What is allocated and not yet freed, for TestTimerGC. The other forms of new call this one.
static std::atomic<long> allocated{0};

void* operator new(std::size_t n) {
    void* p = std::malloc(n != 0 ? n : 1);
    if (p == nullptr) throw std::bad_alloc();
    allocated.fetch_add(1, std::memory_order_relaxed);
    return p;
}
// A sanitizer has one of its own, which GoogleTest calls from 1.16 on.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    try {
        return operator new(size);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* p) noexcept {
    if (p != nullptr) allocated.fetch_sub(1, std::memory_order_relaxed);
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

namespace {

using dunlin::after;
using dunlin::after_func;
using dunlin::clock;
using dunlin::ticker;
using dunlin::timer;
using times = dunlin::receiver<clock::time_point>;
using std::chrono::nanoseconds;

class GoTick : public support::each_p {};
EACH_P(GoTick);
class GoTickOnce : public support::runtime_test {};

bool arrived(const times& c) { return c.try_recv().has_value(); }
bool arrived(const dunlin::chan<bool>& c) { return c.try_recv().status() != dunlin::channel_status::would_block; }

// ---- tickers --------------------------------------------------------------------------------------------------------

std::string tick_and_reset(int count, nanoseconds delta) {
    const auto t0 = clock::now();
    ticker k(delta);
    const times c = k.channel();
    for (int i = 1; i <= count / 2; ++i) {
        c.recv();
        EXPECT_GE(clock::now() - t0, i * delta) << "early";
    }
    const auto t1 = clock::now();
    k.reset(delta * 2);
    for (int i = 1; i <= count - count / 2; ++i) {
        c.recv();
        EXPECT_GE(clock::now() - t1, i * 2 * delta) << "early after reset";
    }
    k.stop();
    const auto took = clock::now() - t0, target = 3 * delta * (count / 2);
    // Now that it stopped.
    dunlin::sleep_for(2 * delta);
    EXPECT_FALSE(arrived(c)) << "Ticker did not shut down";
    if (took <= target + target * 3 / 10) return "";
    return std::to_string(count) + " ticks of " + std::to_string(delta / 1ms) + " ms took " +
           std::to_string(took / 1ms) + " ms";
}

// TMR-14. A busy machine makes it late, so it tries again with longer periods.
TEST_P(GoTick, TestTicker) {
    allow(60s);
    run([] {
        std::string errors;
        for (const auto& [count, delta] :
            {std::pair(10, 20ms), std::pair(10, 60ms), std::pair(8, 200ms), std::pair(8, 1000ms)}) {
            const std::string error = tick_and_reset(count, delta);
            if (error.empty()) return;
            errors += error + '\n';
            dunlin::sleep_for(500ms);
        }
        ADD_FAILURE() << errors;
    });
}

// TMR-14: a late receiver finds one tick, and the next is one to come.
TEST_P(GoTick, TestTickerIsNotBunched) {
    run([] {
        ticker k(10ms);
        const times c = k.channel();
        for (int i = 0; i < 5; ++i) {
            dunlin::sleep_for(55ms);
            const auto before = clock::now();
            EXPECT_TRUE(arrived(c));
            EXPECT_GE(c.recv().value(), before);
        }
    });
}

// Where Go collects garbage, the world is stopped.
struct world_stopper {
    std::atomic<bool> stop{false};
    dunlin::wait_group wg;
    explicit world_stopper(unsigned procs) {
        wg.go([this, procs] {
            for (unsigned i = 0; !stop.load(); ++i) {
                dunlin::runtime::set_max_procs(procs + i % 2);
                dunlin::sleep_for(1ns);
            }
        });
    }
    ~world_stopper() {
        stop = true;
        wg.wait();
    }
};

// TMR-14
TEST_P(GoTick, TestTickerStress) {
    run([this] {
        world_stopper stopper(procs());
        ticker k(1ns);
        const times c = k.channel();
        for (int i = 0; i < 100; ++i) c.recv();
        k.stop();
    });
}

// TMR-14
TEST_P(GoTick, TestTickerConcurrentStress) {
    run([this] {
        world_stopper stopper(procs());
        ticker k(1ns);
        const times c = k.channel();
        dunlin::wait_group wg;
        for (int g = 0; g < 10; ++g) {
            wg.go([c] {
                for (int i = 0; i < 100; ++i) c.recv();
            });
        }
        wg.wait();
        k.stop();
    });
}

TEST_P(GoTick, TestTeardown) {
    run([] {
        for (int i = 0; i < 3; ++i) {
            ticker k(20ms);
            k.channel().recv();
            k.stop();
        }
    });
}

// TMR-20. std::invalid_argument takes the place of the panic.
template <class F>
void expect_non_positive(F&& f, const std::string& where) {
    try {
        f();
        ADD_FAILURE() << "should have thrown";
    } catch (const std::invalid_argument& e) {
        EXPECT_NE(std::string(e.what()).find("non-positive interval for " + where), std::string::npos) << e.what();
    }
}

TEST_F(GoTickOnce, TestNewTickerLtZeroDuration) {
    expect_non_positive([] { ticker k(-1ns); }, "NewTicker");
    expect_non_positive([] { ticker k(0s); }, "NewTicker");
}
TEST_F(GoTickOnce, TestTickerResetLtZeroDuration) {
    ticker k(1s);
    expect_non_positive([&] { k.reset(0s); }, "Ticker.Reset");
    expect_non_positive([&] { k.reset(-1ns); }, "Ticker.Reset");
    EXPECT_TRUE(k.stop());
}

// ---- many timers ----------------------------------------------------------------------------------------------------

// CPU time of the process: a busy machine makes that little longer.
nanoseconds cpu_time() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + nanoseconds(t.tv_nsec);
}

// Functions go through a goroutine that queues them; each that comes back is waited for with a timeout of 5 s. How much
// CPU time that took.
nanoseconds ping_pong_with_timeouts(int rounds) {
    using function = std::function<void()>;
    dunlin::chan<function> in, out;
    dunlin::wait_group wg;
    wg.go([&] {
        std::deque<function> q;
        for (bool open = true; open;) {
            const auto take = [&](std::optional<function> f) {
                if (f) q.push_back(std::move(*f));
                else open = false;
            };
            if (q.empty()) {
                take(in.recv());
            } else if (dunlin::select(dunlin::on_send(out, std::move(q.front())), dunlin::on_recv(in, take)) == 0) {
                q.pop_front();
            }
        }
        out.close();
    });
    const nanoseconds begin = cpu_time();
    for (int i = 0; i < rounds; ++i) {
        constexpr int tries = 20;
        for (int k = 0; k < tries; ++k) in.send([] {});
        for (int k = 0; k < tries; ++k) {
            // 60 s where Go has 5: a timeout is a timer in the way, whatever its length, and a machine may stand still
            // for long.
            const std::size_t taken = dunlin::select(dunlin::on_recv(out), dunlin::on_recv(after(60s)));
            if (taken != 0) ADD_FAILURE() << "failed to read work, iteration " << i;
        }
    }
    const nanoseconds took = cpu_time() - begin;
    in.close();
    wg.wait();
    return took;
}

nanoseconds best_of_three(int rounds) {
    return std::min(
        {ping_pong_with_timeouts(rounds), ping_pong_with_timeouts(rounds), ping_pong_with_timeouts(rounds)});
}

// TMR-18
TEST_P(GoTick, TestLongAdjustTimers) {
    allow(180s);
    run([this] {
        const auto fresh = best_of_three(support::rounds(1000));
        const int count = support::rounds(5000);
        dunlin::wait_group wg;
        for (int i = 0; i < count; ++i) wg.go([] { dunlin::sleep_for(10us); });
        for (int i = 0; i < count; ++i) dunlin::sleep_for(1us);
        // 50000 rounds, but for the time it takes with each number of processors.
        EXPECT_LT(
            ping_pong_with_timeouts(support::rounds(procs() == 8 ? 50'000 : 10'000)), support::sanitized ? 170s : 60s);
        // A busy machine makes each slower now and then, and what is in the way does it always.
        bool slower = !support::sanitized;
        for (int attempt = 0; attempt < 10 && slower; ++attempt)
            slower = best_of_three(support::rounds(1000)) >= 3 * fresh + 20ms;
        EXPECT_FALSE(slower) << "with what is left of other timers";
        wg.wait();
    });
}

// All the timers that stand in heaps.
std::size_t in_heaps() {
    const dunlin::park::runtime_section inside;
    const auto& s = dunlin::sched::the_scheduler;
    std::size_t n = 0;
    for (std::uint32_t i = 0, made = s.procs_made.load(); i < made; ++i) {
        n += static_cast<dunlin::timers::timer_heap*>(s.processor_at(i)->events)->size();
    }
    return n;
}

// TMR-19. Dropping the handle is what collects them here.
TEST_P(GoTick, TestTimerGC) {
    run([] {
        constexpr int n = 10'000;
        const auto dropped = [](const char* what, auto f) {
            f();
            const long before = allocated.load();
            for (int i = 0; i < n; ++i) f();
            EXPECT_LT(allocated.load() - before, n / 100) << what;
            EXPECT_EQ(in_heaps(), 0u) << what;
        };
        dropped("After", [] { after(1h); });
        dropped("NewTimer", [] { timer t(1h); });
        dropped("NewTimer, its channel", [] { timer(1h).channel(); });
        dropped("NewTicker", [] { ticker k(1h); });
        dropped("NewTimerStop", [] { timer(1h).stop(); });
        dropped("NewTickerStop", [] { ticker(1h).stop(); });
        dropped("a timer that somebody has waited for", [] { timer(1h).channel().recv_for(1us); });
        dropped("a timeout that was not needed", [] {
            dunlin::chan<int> ready(1);
            ready.send(1);
            dunlin::select(dunlin::on_recv(ready), dunlin::on_recv(after(1h)), dunlin::on_timeout(1h));
        });
        dropped("AfterFuncStop", [] { after_func(1h, [] {}).stop(); });
    });
}

// ---- synchronous timer channels -------------------------------------------------------------------------------------

// TMR-15 (and SEL-13): Go's script for a timer or a ticker, made for 10000 s. It needs no patience where nothing may
// arrive, and a lot where something must.
template <class Timer>
class timer_chan_script {
public:
    static constexpr bool is_ticker = std::is_same_v<Timer, ticker>;
    static constexpr auto sched = 10ms;
    static constexpr int tries = 1000;

    void run() {
        never_in_a_heap();
        in_a_heap();
        follows_resets();
        two_waiters();
        waiters_of_a_stopped_one();
        no_old_values();
    }

private:
    void no_tick(int line) { EXPECT_FALSE(arrived(c_)) << "extra tick, line " << line; }
    void assert_tick(int line) {
        for (int i = 0; i < tries; ++i) {
            if (arrived(c_)) return;
            dunlin::sleep_for(sched);
        }
        ADD_FAILURE() << "missing tick, line " << line;
    }
    static void not_done(const dunlin::chan<bool>& done) { EXPECT_FALSE(arrived(done)) << "early done"; }
    static void wait_done(const dunlin::chan<bool>& done) {
        for (int i = 0; i < tries; ++i) {
            dunlin::sleep_for(sched);
            if (arrived(done)) return;
        }
        ADD_FAILURE() << "never got done";
    }

    void never_in_a_heap() {
        t_.stop();
        no_tick(__LINE__);
        t_.reset(10000s);
        no_tick(__LINE__);
    }
    void in_a_heap() {
        t_.reset(1ns);
        dunlin::sleep_for(sched);
        EXPECT_EQ(c_.len(), 0u);
        EXPECT_EQ(c_.cap(), 0u);
        assert_tick(__LINE__);
        // A second tick must have happened if it is a ticker.
        dunlin::sleep_for(sched);
        t_.reset(10000s);
        no_tick(__LINE__);
    }
    void follows_resets() {
        t_.reset(10000s);
        dunlin::chan<bool> done;
        not_done(done);
        dunlin::go([c = c_, done] {
            c.recv();
            done.close();
        });
        dunlin::sleep_for(sched);
        not_done(done);
        t_.reset(20000s);
        dunlin::sleep_for(sched);
        not_done(done);
        t_.reset(1ns);
        wait_done(done);
        if (is_ticker) {
            assert_tick(__LINE__);  // another should have come in already
        } else {
            no_tick(__LINE__);
        }
        t_.stop();
        no_tick(__LINE__);
    }
    void two_waiters() {
        t_.reset(10000s);
        dunlin::chan<bool> done(2), done1, done2, stop;
        for (const auto& mine : {done1, done2}) {
            dunlin::go([c = c_, done, mine, stop] {
                dunlin::select(dunlin::on_recv(c, [&] { done.send(true); }), dunlin::on_recv(stop));
                mine.close();
            });
        }
        dunlin::sleep_for(sched);
        not_done(done);
        t_.reset(20000s);
        dunlin::sleep_for(5 * sched);
        not_done(done);
        t_.reset(sched / 2);
        dunlin::sleep_for(sched);
        wait_done(done);
        t_.stop();
        stop.close();
        wait_done(done1);
        wait_done(done2);
        if (is_ticker) arrived(done);  // the other may have had a tick as well
        not_done(done);
    }
    void waiters_of_a_stopped_one() {
        dunlin::chan<bool> stop, done(2);
        for (int i = 0; i < 2; ++i) {
            dunlin::go([c = c_, done, stop] {
                dunlin::select(dunlin::on_recv(c, [] { ADD_FAILURE() << "unexpected data"; }), dunlin::on_recv(stop));
                done.send(true);
            });
        }
        dunlin::sleep_for(sched);
        stop.close();
        wait_done(done);
        wait_done(done);
    }
    // Go issue 37196.
    void no_old_values() {
        t_.reset(1ns);
        dunlin::sleep_for(10ms);
        EXPECT_TRUE(t_.stop());
        no_tick(__LINE__);
        t_.reset(1h);
        no_tick(__LINE__);
        EXPECT_TRUE(t_.reset(1ns));
        assert_tick(__LINE__);
        dunlin::sleep_for(10ms);
        if (is_ticker) {
            assert_tick(__LINE__);
            dunlin::sleep_for(10ms);
        } else {
            no_tick(__LINE__);
        }
        EXPECT_EQ(t_.reset(1h), is_ticker);
        no_tick(__LINE__);
    }

    Timer t_{10000s};
    times c_ = t_.channel();
};

// TMR-15
TEST_P(GoTick, TestChanTimer) {
    run([] { timer_chan_script<timer>().run(); });
}
TEST_P(GoTick, TestChanTicker) {
    run([] { timer_chan_script<ticker>().run(); });
}

// TMR-16: received late, the value is the time at which it was due. Go allows for a scheduler that comes late; the
// exact value does not depend on it.
TEST_P(GoTick, TestAfterTimes) {
    run([] {
        const auto start = clock::now();
        const times c = after(10ms);
        const auto started = clock::now();
        dunlin::sleep_for(500ms);
        const auto value = c.recv().value();
        EXPECT_GE(value, start + 10ms);
        EXPECT_LE(value, started + 10ms);
        EXPECT_LT(value, clock::now() - 400ms);
    });
}

// TMR-16
TEST_P(GoTick, TestTickTimes) {
    run([] {
        const auto start = clock::now();
        ticker k(10ms);
        const auto started = clock::now();
        dunlin::sleep_for(500ms);
        const auto value = k.channel().recv().value();
        EXPECT_GE(value, start + 10ms);
        EXPECT_LE(value, started + 10ms);
        EXPECT_LT(value, clock::now() - 400ms);
    });
}

}  // namespace
