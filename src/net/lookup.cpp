#include "net/lookup.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <new>
#include <pthread.h>
#include <sys/socket.h>
#include <utility>

#include <dunlin/blocking.hpp>
#include <dunlin/chan.hpp>
#include <dunlin/detail/helper.hpp>

#include "park/waiter.h"
#include "platform/clock.h"
#include "platform/lock.h"
#include "poll/netpoll.h"

namespace dunlin::inline v0_1::net {

namespace {

constexpr std::ptrdiff_t places = 64;
constexpr int most_unwanted = 192;

struct flight : std::enable_shared_from_this<flight> {
    explicit flight(question q) : asked(std::move(q)) {}
    const question asked;
    const chan<char> over{0};      // closes
    answer found;                  // constant once `done` is set
    int waiters = 0;               // lock, as for all that follows
    bool has_place = true;
    bool done = false, lost = false;
    // constant: what asks the system is a plain thread or an independent goroutine, and no end of a run() stops it
    bool outlives_run = false;
    std::shared_ptr<flight> next;  // in the table
};
using flight_ptr = std::shared_ptr<flight>;

// A second close is no mistake here: the goroutine that began the first one may have been frozen before it had closed
// the channel.
void close_once(const chan<char>& c) {
    try {
        c.close();
    } catch (const channel_closed&) {
    }
}

class table {
public:
    // Null: no flight asks this question. Otherwise the caller is now one of the flight's waiters.
    flight_ptr join(const question& q) noexcept {
        const section mine(lock_);
        return join_here(q);
    }
    // Returns the flight to wait for: `fresh`, or an equal one that was faster.
    flight_ptr begin(const flight_ptr& fresh) noexcept {
        const section mine(lock_);
        if (flight_ptr f = join_here(fresh->asked)) return f;
        fresh->waiters = 1;
        fresh->next = std::move(first_);
        first_ = fresh;
        return fresh;
    }
    void leave(const flight_ptr& f) noexcept {
        {
            const section mine(lock_);
            if (--f->waiters != 0 || f->done || !f->has_place || unwanted_ == most_unwanted) return;
            f->has_place = false;
            ++unwanted_;
        }
        give_place_back();
    }
    void finish(const flight_ptr& f, answer a) {
        {
            const section mine(lock_);
            if (!f->lost) f->found = std::move(a), f->done = true;
        }
        close_once(f->over);
        bool had_place;
        flight_ptr gone;  // freed after the lock is released
        {
            const section mine(lock_);
            flight_ptr* at = &first_;
            while (*at != nullptr && *at != f) at = &(*at)->next;
            if (*at != nullptr) gone = std::exchange(*at, std::move(f->next));
            had_place = f->has_place;
            if (!had_place) --unwanted_;
        }
        if (had_place) give_place_back();
    }

    detail::wait_outcome take_place(const wait_limit* limit) {
        char place = 0;
        return detail::channel_send(
            detail::handle_access::core(places_), &place, limit, std::source_location::current());
    }
    void give_place_back() noexcept { static_cast<void>(places_.try_recv()); }

    bool is_done(const flight_ptr& f) noexcept {
        const section mine(lock_);
        return f->done;
    }

    // All goroutines stand still.
    void end_of_run() {
        flight_ptr all;
        {
            const std::scoped_lock guard(lock_);
            for (flight* f = first_.get(); f != nullptr; f = f->next.get()) f->lost = !f->done && !f->outlives_run;
            all = std::move(first_);
        }
        close_once(places_);
        for (const flight* f = all.get(); f != nullptr; f = f->next.get()) {
            if (f->lost || f->done) close_once(f->over);
        }
    }

private:
    using lock_type = platform::ranked_lock<platform::lock_rank::registry>;
    struct section {
        explicit section(lock_type& lock) noexcept : guard(lock) {}
        park::runtime_section inside;
        std::scoped_lock<lock_type> guard;
    };
    flight_ptr join_here(const question& q) noexcept {
        flight* f = first_.get();
        while (f != nullptr && f->asked != q) f = f->next.get();
        if (f == nullptr) return nullptr;
        ++f->waiters;
        return f->shared_from_this();
    }

    const chan<char> places_{places};  // each element is a taken place
    lock_type lock_;
    flight_ptr first_;  // lock
    int unwanted_ = 0;  // lock: flights without a place
};

// The current table. Goroutines of a run() that has ended keep the table that they have.
class table_of_run {
public:
    std::shared_ptr<table> get() {
        auto fresh = std::make_shared<table>();  // outside the lock, because it may throw
        park::runtime_section inside;
        const std::scoped_lock guard(lock_);
        if (current_ == nullptr) current_.swap(fresh);
        return current_;
    }
    void forget() noexcept {
        std::shared_ptr<table> last;
        {
            const std::scoped_lock guard(lock_);
            last.swap(current_);
        }
        if (last != nullptr) last->end_of_run();
    }

private:
    platform::ranked_lock<platform::lock_rank::registry> lock_;
    std::shared_ptr<table> current_;  // lock
};

// Never destroyed: look-ups may go on when the program ends.
constinit union never_destroyed {
    table_of_run value[2];  // of hosts and of ports
    constexpr never_destroyed() : value() {}
    ~never_destroyed() {}
} the_tables;

// A port's name mostly stands in a file: it does not wait for a place behind hosts whose name server does not answer.
table_of_run& tables_for(const question& q) noexcept {
    // An index: for a choice between two objects clang reads both, the second without its lock.
    return the_tables.value[(q.flags & AI_NUMERICHOST) != 0];
}

// `error`: errno after the call.
std::error_code error_of(int result, int error) noexcept {
    // Without a descriptor for its files and sockets, libc says that there is no such name.
    if (error == EMFILE || error == ENFILE) return system_error_code(error);
    switch (result) {
    case EAI_SYSTEM: return system_error_code(error);
    case EAI_AGAIN: return std::make_error_code(std::errc::resource_unavailable_try_again);
    case EAI_MEMORY: return std::make_error_code(std::errc::not_enough_memory);
    case EAI_SERVICE: return errc::bad_address;
    default: return errc::host_not_found;
    }
}

// A look-up needs a thread, so it cannot succeed at once. None is begun for a caller that may no longer wait.
std::error_code over_already(const wait_limit& limit) noexcept {
    if (limit.done != nullptr) {
        if (const std::error_code ec = detail::error_of_node(limit.done)) return ec;
    }
    return limit.deadline_ns <= platform::now_ns() ? std::make_error_code(std::errc::timed_out) : std::error_code();
}

bool is_limited(const wait_limit* limit) noexcept {
    return limit != nullptr && (limit->deadline_ns != wait_limit::never || limit->done != nullptr);
}

std::error_code error_of(detail::wait_outcome end, const wait_limit* limit) noexcept {
    return end == detail::wait_outcome::cancelled ? detail::error_of_node(limit->done)
                                                  : std::make_error_code(std::errc::timed_out);
}

void ask(const std::shared_ptr<table>& t, const flight_ptr& f) noexcept {
    answer a;
    try {
        a = blocking([&f] { return ask_the_system(f->asked); });
    } catch (const std::bad_alloc&) {
        a.error = std::make_error_code(std::errc::not_enough_memory);
    }
    t->finish(f, std::move(a));
}

// The caller has a place: the flight takes it over, or it is given back.
flight_ptr take_off(const std::shared_ptr<table>& t, const question& q, bool in_a_goroutine) {
    flight_ptr f, fresh;
    try {
        fresh = std::make_shared<flight>(q);
        fresh->outlives_run = detail::this_caller() == detail::caller::of_none;
        f = t->begin(fresh);
    } catch (...) {
        t->give_place_back();
        throw;
    }
    if (f != fresh) {
        t->give_place_back();
        return f;
    }
    if (!in_a_goroutine) {
        ask(t, f);
        return f;
    }
    try {
        detail::go_for(detail::this_caller(), [t, f] { ask(t, f); });
    } catch (...) {
        t->finish(f, {{}, std::make_error_code(std::errc::not_enough_memory)});
    }
    return f;
}

// From construction to destruction pthread_cancel() does not end the thread. getaddrinfo() is a cancellation point, and
// others may wait for the answer of the thread that asks.
class not_cancelled {
public:
    not_cancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~not_cancelled() { pthread_setcancelstate(before_, nullptr); }
    not_cancelled(const not_cancelled&) = delete;
    not_cancelled& operator=(const not_cancelled&) = delete;

private:
    int before_;
};

}  // namespace

namespace {

// Not inlined: it uses errno, which is set first because only what this call has set tells of it.
[[gnu::noinline]] std::error_code call_getaddrinfo(const question& q, const addrinfo& hints, addrinfo*& list) noexcept {
    errno = 0;
    const int result = getaddrinfo(q.host.c_str(), q.port.empty() ? "0" : q.port.c_str(), &hints, &list);
    return result != 0 ? error_of(result, errno) : std::error_code();
}

}  // namespace

answer ask_the_system(const question& q) {
    const not_cancelled scope;
    addrinfo hints{};
    hints.ai_family = q.family;
    hints.ai_socktype = q.type;
    hints.ai_flags = (q.passive ? AI_PASSIVE : 0) | q.flags;
    addrinfo* list = nullptr;
    answer a;
    a.error = call_getaddrinfo(q, hints, list);
    if (a.error) return a;
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
    for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
        const address found = address::from_native(i->ai_addr, i->ai_addrlen);
        if (std::find(a.addresses.begin(), a.addresses.end(), found) == a.addresses.end()) a.addresses.push_back(found);
    }
    if (a.addresses.empty()) a.error = errc::host_not_found;
    return a;
}

answer look_up(const question& q, const wait_limit* limit) {
    if (!is_limited(limit)) {
        limit = nullptr;
    } else if (const std::error_code ec = over_already(*limit)) {
        return {{}, ec};
    }
    netpoll::at_end_of_run([]() noexcept {
        for (table_of_run& t : the_tables.value) t.forget();
    });
    for (;;) {
        const std::shared_ptr<table> t = tables_for(q).get();
        flight_ptr f = t->join(q);
        if (f == nullptr) {
            const detail::wait_outcome end = t->take_place(limit);
            if (end == detail::wait_outcome::closed) continue;  // the run has ended, and this is a plain thread
            if (end != detail::wait_outcome::ok) return {{}, error_of(end, limit)};
            f = take_off(t, q, limit != nullptr);
        }
        detail::element_slot<char> never;
        const detail::wait_outcome end = detail::channel_receive(
            detail::handle_access::core(f->over), &never.value, limit, std::source_location::current());
        if (end != detail::wait_outcome::closed) {
            t->leave(f);
            return {{}, error_of(end, limit)};
        }
        if (t->is_done(f)) return f->found;
    }
}

}  // namespace dunlin::net
