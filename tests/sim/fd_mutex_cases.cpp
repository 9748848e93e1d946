// The fd mutex of a descriptor: it is closed once, by the last, and not while another uses it.
#include "platform/futex.h"
#include "platform/destroyable_lock.h"
#include "poll/fd_mutex.h"
#include "sim/cases.h"

namespace {

using namespace dunlin;
using namespace dunlin::sim_cases;
using netpoll::direction;
using netpoll::fd_mutex;

struct fd_mutex_state {
    fd_mutex g;
    explorer::variable<int> read_place{0, "how far readers have read"};
    explorer::variable<int> open{1, "the descriptor"};
    explorer::variable<int> closings{0, "how often it was closed"};

    void use() { explorer::require(open.get() == 1, "a closed descriptor is used"); }
    void end() {
        open.set(0);
        closings.set(closings.get() + 1);
    }
};

// Reads if it may. True: others of its kind wait, and its turn is handed on.
void read(fd_mutex_state& s) {
    if (s.g.enter(direction::read) != fd_mutex::entry::in) return;
    s.use();
    s.read_place.set(s.read_place.get() + 1);
    bool last = false;
    explorer::require(s.g.leave(direction::read, last), "somebody waits, and nobody said so");
    if (last) s.end();
}

void close(fd_mutex_state& s) {
    if (s.g.close() && s.g.end_use()) s.end();
}

void closed_once(explorer::scenario& s, fd_mutex_state& g) {
    s.at_end([&g] { explorer::require(g.closings.get() == 1, "it is not closed, or twice"); });
}

const add readers{"fd_mutex/readers_and_closer", exhaustively(), [](explorer::scenario& s) {
    auto& g = s.make<fd_mutex_state>("fd_mutex");
    s.thread("reader", [&g] { read(g); });
    s.thread("other reader", [&g] { read(g); });
    s.thread("closer", [&g] { close(g); });
    closed_once(s, g);
}};

const add users{"fd_mutex/user_reader_writer_and_two_closers", exhaustively(2, 2) + at_random(5'000),
    [](explorer::scenario& s) {
    auto& g = s.make<fd_mutex_state>("fd_mutex");
    s.thread("reader", [&g] { read(g); });
    s.thread("user", [&g] {
        if (!g.g.use()) return;
        g.use();
        if (g.g.end_use()) g.end();
    });
    s.thread("closer", [&g] { close(g); });
    s.thread("other closer", [&g] { close(g); });
    closed_once(s, g);
}};

// A reader that finds another inside says that it waits; the other finds that, or the saying fails.
const add waiting{"fd_mutex/a_waiter_is_seen", exhaustively(), [](explorer::scenario& s) {
    struct state : fd_mutex_state {
        platform::destroyable_lock lock;  // the descriptor's
        bool waits = false;          // lock
        platform::atomic<std::uint32_t> turn{0};
    };
    auto& g = s.make<state>("fd_mutex");
    const auto read_inside = [&g] {
        while (g.g.enter(direction::read) != fd_mutex::entry::in) {
            g.lock.lock();
            const fd_mutex::entry e = g.g.announce(direction::read);
            g.waits = e == fd_mutex::entry::busy;
            g.lock.unlock();
            if (e != fd_mutex::entry::busy) continue;
            // The leaver hands its turn on: this one is inside then.
            while (g.turn.load(std::memory_order_acquire) == 0) platform::futex_wait(g.turn, 0);
            break;
        }
        g.read_place.set(g.read_place.get() + 1);
        bool last = false;
        if (g.g.leave(direction::read, last)) return;
        g.lock.lock();
        explorer::require(g.waits, "nobody waits");
        g.waits = false;
        g.g.clear_waiting(direction::read);
        g.lock.unlock();
        g.turn.store(1, std::memory_order_release);
        platform::futex_wake(g.turn);
    };
    s.thread("reader", read_inside);
    s.thread("other", read_inside);
    s.at_end([&g] { explorer::require(g.read_place.get() == 2, "a turn is lost"); });
}};

}  // namespace
