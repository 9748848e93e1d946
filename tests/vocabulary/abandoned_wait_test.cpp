// Everything that can be waited for, and one waiter that gives up: abandon.h says what must hold.
// A new primitive: a subject (abandon_chan.h, abandon_sync.h, abandon_words.h, abandon_io.h, abandon_net.h) and a line
// in the table, or in abandon_rows.h. Those of TLS are in tests/tls.
#include <dlfcn.h>
#include <netdb.h>
#include <string>

#include "support/runtime_test.h"
#include "vocabulary/abandon.h"
#include "vocabulary/abandon_chan.h"
#include "vocabulary/abandon_io.h"
#include "vocabulary/abandon_net.h"
#include "vocabulary/abandon_rows.h"
#include "vocabulary/abandon_sync.h"
#include "vocabulary/abandon_table.h"

// Names of resolving: they wait for its serve(). All others are the system's.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** result) {
    using look_up = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<look_up>(dlsym(RTLD_NEXT, "getaddrinfo"));
    return real(host != nullptr && abandon::resolving::wait_for(host) ? "127.0.0.1" : host, service, hints, result);
}

namespace {

using namespace abandon;

// Beside those of abandon_rows.h.
const row table[] = {
    {"select_readable", make<select_readable>, {.timed = true, .closes = true, .for_all = true}},
    {"timer", make<timer_channel>, {.timed = true}},
    {"ticker", make<ticks>, {.timed = true, .for_all = true}},
    {"context_done", make<context_done>, {.timed = true, .for_all = true}},
    {"sleep", make<sleeping>, {.for_all = true}},
    {"mutex_with_passers_by", make<passed_by_mutex_lock>, {.timed = true}},
    {"recursive_mutex", make<recursive_lock>, {.timed = true, .for_all = true}},
    {"shared_mutex_readers_behind_a_writer", make<readers_behind_a_writer>,
        {.timed = true, .for_all = true, .freed_by_leaver = true}},
    {"condition_variable_any", make<condition_wait<dunlin::condition_variable_any>>, {.timed = true}},
    {"condition_variable_stop_token", make<condition_with_stop_token>, {.timed = true}},
    {"call_once", make<once_call>, {.for_all = true, .quits = false}},
    {"pipe_read", make<stream_read<pipe_ends>>, {.closes = true, .destroys = true}},
    {"tcp_read", make<stream_read<tcp_ends>>, {.closes = true}},
    {"stream_write", make<stream_write>, {.closes = true, .for_all = true}},
    {"accept", make<accepting>, {.closes = true}},
    {"packet_read", make<packet_read>, {.closes = true}},
    {"packet_write", make<packet_write>, {.closes = true}},
    {"dial", make<dialling>, {.timed = true, .for_all = true}},
    {"resolve", make<resolving>, {.for_all = true}},
    {"signal", make<signal_wait>, {.timed = true}},
    {"process", make<process_wait>, {.for_all = true}},
};

class AbandonedWait : public each_row {};

TEST_P(AbandonedWait, LosesNothing) { expect_nothing_lost(); }

INSTANTIATE_TEST_SUITE_P(
    InMemory, AbandonedWait, testing::Combine(testing::ValuesIn(rows_in_memory), testing::Values(1u, 2u, 8u)),
    row_name);
INSTANTIATE_TEST_SUITE_P(
    Each, AbandonedWait, testing::Combine(testing::ValuesIn(table), testing::Values(1u, 2u, 8u)), row_name);

// ---- what would not keep to it is noticed -------------------------------------------------------------------------

enum class mistake { permit_too_many, another_end, too_early, closed_as_cancelled };

class mistaken : public semaphore_acquire {
public:
    explicit mistaken(mistake m) : mistake_(m) {}
    outcome wait(const limit& l, bool quitter) override {
        if (mistake_ == mistake::too_early && l.how == limit::time) return outcome::timed_out;
        if (mistake_ == mistake::closed_as_cancelled) return closed_.recv() ? outcome::got : outcome::cancelled;
        const outcome o = semaphore_acquire::wait(l, quitter);
        return mistake_ == mistake::another_end && o == outcome::cancelled ? outcome::timed_out : o;
    }
    void serve() override {
        semaphore_acquire::serve();
        if (mistake_ == mistake::permit_too_many && ++served_ == 2) semaphore_acquire::serve();
    }
    void close() override { closed_.close(); }

private:
    const mistake mistake_;
    int served_ = 0;
    dunlin::chan<int> closed_;
};

class AbandonedWaitItself : public support::runtime_test {
protected:
    static std::string fault(mistake m, way w) {
        constexpr traits what{.timed = true, .closes = true, .waiters = 3};
        const scenario s{w, 1, kind::goroutine, kind::thread};
        return dunlin::run({.max_procs = 2}, [&] { return play(std::make_unique<mistaken>(m), what, s).run(); });
    }
};

TEST_F(AbandonedWaitItself, NoticesWhatIsNotAsItShouldBe) {
    EXPECT_EQ(fault(mistake::permit_too_many, way::cancel), "a permit is left");
    EXPECT_EQ(fault(mistake::another_end, way::cancel), "the quitter: timed out");
    EXPECT_EQ(fault(mistake::too_early, way::time_out), "the quitter, too early,: timed out");
    EXPECT_EQ(fault(mistake::closed_as_cancelled, way::close), "a wait ended by close(): cancelled");
}

}  // namespace
