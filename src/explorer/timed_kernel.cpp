// timed_kernel.cpp - the kernel of a simulation of scale: threads, futex, membarrier, epoll, local sockets.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <utility>

#include "explorer/timed.h"

namespace dunlin::inline v0_1::explorer {

namespace {

constexpr int first_thread_id = 1000;
constexpr int first_descriptor = 1 << 20;

}  // namespace

void timed::name_parts() {
    const std::pair<const char*, const char*> all[] = {{&parts_.send, "send"}, {&parts_.receive, "receive"},
        {&parts_.poll, "epoll"}, {&parts_.poll_lock, "epoll's lock"}, {&parts_.event, "eventfd"},
        {&parts_.pair, "socketpair"}, {&parts_.wake, "futex wake"}, {&parts_.sleep, "futex sleep"},
        {&parts_.barrier, "membarrier"}, {&parts_.other, "other calls"}};
    for (const auto& [part, text] : all) name(part, 1, text);
}

void timed::charge_call(std::int64_t ns, const char* part, const std::source_location& where) noexcept {
    take_turn();
    virtual_thread& t = me();
    if (t.stores_leave_ns > t.time_ns) charge(spent::lines, t.stores_leave_ns - t.time_ns);
    charge(spent::kernel, ns);
    if (measuring_) {
        place& p = place_at(part, where);
        ++p.count;
        p.kernel_ns += ns;
    }
    take_turn();
}

// A long wait is charged in steps: a measurement may begin or end meanwhile.
void timed::charge_wait(spent what, std::int64_t ns, std::int64_t place::*how, const char* part,
    const std::source_location& where) noexcept {
    constexpr std::int64_t longest_ns = 5'000;
    while (ns > 0) {
        const std::int64_t step = std::min(ns, longest_ns);
        charge(what, step);
        if (measuring_) place_at(part, where).*how += step;
        take_turn();
        ns -= step;
    }
}

// ---- threads -------------------------------------------------------------------------------------------------------

void timed::pause() noexcept {
    const std::int64_t ns = costs_[cost::pause];
    charge(spent::spinning, ns);
    if (measuring_ && me().looked_at != nullptr) place_at(me().looked_at, me().looked_from).spun_ns += ns;
    take_turn();
}

std::int64_t timed::now_ns() noexcept {
    take_turn();
    charge(spent::plain, costs_[cost::clock]);
    return me().time_ns;
}

int timed::thread_id() noexcept { return first_thread_id + static_cast<int>(current_); }

int timed::start_thread(void* (*entry)(void*), void* argument) noexcept {
    take_turn();
    charge(spent::kernel, costs_[cost::thread_start]);
    add_thread("thread", [=] { entry(argument); }, me().time_ns);
    return 0;
}

void timed::name_thread(const char* name) noexcept { me().name = name; }

platform::simulation::thread_look timed::look_at(int thread_id) noexcept {
    take_turn();
    const auto number = static_cast<std::size_t>(thread_id - first_thread_id);
    if (number >= threads_.size()) return {};
    charge(spent::kernel, number == current_ ? costs_[cost::call] : costs_[cost::look_at_thread]);
    const virtual_thread& t = *threads_[number];
    return {t.is == condition::runs || t.is == condition::waits_for_cpu, t.cpu_ns, t.slept};
}

unsigned timed::count_threads() noexcept {
    const auto lives = [](const auto& t) { return t->is != condition::ended; };
    return static_cast<unsigned>(std::count_if(threads_.begin(), threads_.end(), lives));
}

// No signal arrives.
void timed::send_signal(int, int) noexcept { charge(spent::kernel, costs_[cost::call]); }

// ---- futex and membarrier ------------------------------------------------------------------------------------------

bool timed::futex_wait(
    const void* word, std::uint32_t expected, std::int64_t deadline_ns, const std::source_location& where) noexcept {
    charge_call(costs_[cost::call], &parts_.sleep, where);
    virtual_thread& t = me();
    std::uint32_t value = 0;
    std::memcpy(&value, word, sizeof value);
    if (value != expected) return true;
    t.sleeps_on = reinterpret_cast<std::uintptr_t>(word);
    sleepers_[t.sleeps_on].push_back(t.number);
    sleep(deadline_ns);
    return !me().timed_out;
}

void timed::futex_wake(const void* word, int count, const std::source_location& where) noexcept {
    take_turn();
    const auto found = sleepers_.find(reinterpret_cast<std::uintptr_t>(word));
    if (found == sleepers_.end() || found->second.empty()) {
        return charge_call(costs_[cost::futex_wake_none], &parts_.wake, where);
    }
    for (; count > 0 && !found->second.empty(); --count) {
        virtual_thread& t = *threads_[found->second.front()];
        if (measuring_) ++result_.wakes;
        const std::int64_t at_ns = me().time_ns;
        wake(t, false, at_ns);
        charge_call(costs_[cost::futex_wake], &parts_.wake, where);
    }
}

void timed::heavy_barrier(const std::source_location& where) noexcept {
    take_turn();
    virtual_thread& t = me();
    std::int64_t others = 0;
    for (virtual_cpu& c : cpus_) {
        if (c.runs < 0 || c.runs == static_cast<int>(t.number)) continue;
        ++others;
        c.owes_ns += costs_[cost::interrupt];
    }
    const std::int64_t queued_ns = std::max<std::int64_t>(barrier_until_ns_ - t.time_ns, 0);
    const std::int64_t own_ns = costs_[cost::barrier] + others * costs_[cost::barrier_per_cpu];
    barrier_until_ns_ = t.time_ns + queued_ns + own_ns;
    if (measuring_) {
        ++result_.barriers;
        ++place_at(&parts_.barrier, where).count;
    }
    charge_wait(spent::barriers, queued_ns, &place::queued_ns, &parts_.barrier, where);
    charge_wait(spent::barriers, own_ns, &place::kernel_ns, &parts_.barrier, where);
}

// ---- descriptors ---------------------------------------------------------------------------------------------------

bool timed::is_simulated(int fd) const noexcept {
    return fd >= first_descriptor && static_cast<std::size_t>(fd - first_descriptor) < descriptions_.size();
}

long timed::make_pair(int* ends) {
    const auto first = static_cast<int>(descriptions_.size());
    descriptions_.resize(descriptions_.size() + 2);
    for (int i = 0; i < 2; ++i) {
        description& d = descriptions_[static_cast<std::size_t>(first + i)];
        d.is = description::kind::socket;
        d.peer = first_descriptor + first + 1 - i;
        ends[i] = first_descriptor + first + i;
    }
    charge_call(2 * costs_[cost::poll_add], &parts_.pair);
    return 0;
}

void timed::make_ready(int fd, std::uint32_t what) {
    description& d = is_simulated(fd) ? descriptions_[static_cast<std::size_t>(fd - first_descriptor)]
                                      : events_of_kernel_[fd];
    if (d.watched_by < 0) return;
    d.ready |= what;
    epoll& e = polls_[d.watched_by];
    if (!d.listed) {
        d.listed = true;
        e.ready.push_back(fd);
    }
    if (e.sleepers.empty()) return;
    const unsigned sleeper = e.sleepers.back();
    e.sleepers.pop_back();
    if (measuring_) ++result_.wakes;
    wake(*threads_[sleeper], false, me().time_ns);
    charge_call(costs_[cost::futex_wake], &parts_.wake);
}

long timed::send(int fd, const void* data, std::size_t size) {
    charge_call(costs_[cost::send], &parts_.send);
    const int peer = descriptions_[static_cast<std::size_t>(fd - first_descriptor)].peer;
    description& d = descriptions_[static_cast<std::size_t>(peer - first_descriptor)];
    if (d.is == description::kind::none) return -EPIPE;
    d.received.push_back({std::string(static_cast<const char*>(data), size), me().cpu});
    make_ready(peer, EPOLLIN);
    return static_cast<long>(size);
}

long timed::receive(int fd, void* data, std::size_t size) {
    description& d = descriptions_[static_cast<std::size_t>(fd - first_descriptor)];
    const bool any = !d.received.empty();
    charge_call(costs_[any ? cost::receive : cost::receive_nothing], &parts_.receive);
    description& now = descriptions_[static_cast<std::size_t>(fd - first_descriptor)];
    if (now.received.empty()) return now.peer_closed ? 0 : -EAGAIN;
    if (now.received.front().cpu != me().cpu) charge_call(costs_[cost::receive_moved], &parts_.receive);
    description& at_last = descriptions_[static_cast<std::size_t>(fd - first_descriptor)];
    if (at_last.received.empty()) return -EAGAIN;
    std::string& first = at_last.received.front().data;
    const std::size_t n = std::min(size, first.size());
    std::memcpy(data, first.data(), n);
    first.erase(0, n);
    if (first.empty()) at_last.received.pop_front();
    return static_cast<long>(n);
}

long timed::write_event(int fd) {
    charge_call(costs_[cost::event_write], &parts_.event);
    ++events_of_kernel_[fd].counter;
    make_ready(fd, EPOLLIN);
    return 8;
}

void timed::hold_poller(epoll& e, std::int64_t ns) noexcept {
    virtual_thread& t = me();
    const std::int64_t queued_ns = std::max<std::int64_t>(e.busy_until_ns - t.time_ns, 0);
    e.busy_until_ns = t.time_ns + queued_ns + ns;
    charge_wait(spent::kernel, queued_ns, &place::queued_ns, &parts_.poll_lock);
}

long timed::poll_control(int poll, int what, int fd, const void* event) {
    charge_call(costs_[cost::poll_add], &parts_.poll);
    description& d = is_simulated(fd) ? descriptions_[static_cast<std::size_t>(fd - first_descriptor)]
                                      : events_of_kernel_[fd];
    if (what == EPOLL_CTL_DEL) {
        d.watched_by = -1;
        return 0;
    }
    epoll_event e;
    std::memcpy(&e, event, sizeof e);
    d.watched_by = poll;
    d.tag = e.data.u64;
    if (d.is == description::kind::none) d.is = description::kind::event;
    const std::uint32_t now = (d.is == description::kind::socket ? EPOLLOUT : 0u) |
                              (!d.received.empty() || d.counter != 0 ? EPOLLIN : 0u);
    if (now != 0) make_ready(fd, now);
    return 0;
}

long timed::poll_wait(int poll, void* out, int capacity, const void* timeout, bool sleeps) {
    charge_call(costs_[cost::poll], &parts_.poll);
    const auto* const limit = static_cast<const timespec*>(timeout);
    for (;;) {
        epoll& e = polls_[poll];
        // the kernel sees without the lock that nothing is there
        if (!e.ready.empty()) hold_poller(e, costs_[cost::poll_lock]);
        int n = 0;
        while (n < capacity && !e.ready.empty()) {
            const int fd = e.ready.front();
            e.ready.pop_front();
            description& d = is_simulated(fd) ? descriptions_[static_cast<std::size_t>(fd - first_descriptor)]
                                              : events_of_kernel_[fd];
            d.listed = false;
            if (d.watched_by != poll || d.ready == 0) continue;
            epoll_event event{};
            event.events = d.ready;
            event.data.u64 = d.tag;
            std::memcpy(static_cast<char*>(out) + static_cast<std::size_t>(n) * sizeof event, &event, sizeof event);
            d.ready = 0;
            ++n;
        }
        if (n != 0) {
            if (measuring_) result_.polls += static_cast<unsigned>(n);
            hold_poller(e, n * costs_[cost::poll_lock]);
            charge_call(n * costs_[cost::poll_event], &parts_.poll);
            return n;
        }
        if (!sleeps || (limit != nullptr && me().timed_out)) return 0;
        const std::int64_t deadline_ns =
            limit == nullptr ? 0 : me().time_ns + limit->tv_sec * 1'000'000'000 + limit->tv_nsec;
        polls_[poll].sleepers.push_back(current_);
        sleep(deadline_ns);
        if (me().timed_out) {
            std::erase(polls_[poll].sleepers, current_);
            // What has come meanwhile is reported, and the call waits for nothing else.
            sleeps = false;
        }
    }
}

bool timed::system_call(long number, const long (&a)[6], long& result) noexcept {
    if (current_ >= threads_.size()) return false;
    const auto fd = static_cast<int>(a[0]);
    switch (number) {
    case SYS_socketpair: result = make_pair(reinterpret_cast<int*>(a[3])); return true;
    case SYS_epoll_ctl:
        result = poll_control(fd, static_cast<int>(a[1]), static_cast<int>(a[2]), reinterpret_cast<const void*>(a[3]));
        return true;
    case SYS_epoll_pwait:
        result = poll_wait(fd, reinterpret_cast<void*>(a[1]), static_cast<int>(a[2]), nullptr, false);
        return true;
#if defined(SYS_epoll_pwait2)
    case SYS_epoll_pwait2:
#else
    case 441:
#endif
        result =
            poll_wait(fd, reinterpret_cast<void*>(a[1]), static_cast<int>(a[2]), reinterpret_cast<void*>(a[3]), true);
        return true;
    case SYS_write:
        if (events_of_kernel_.contains(fd)) {
            result = write_event(fd);
            return true;
        }
        [[fallthrough]];
    case SYS_sendto:
        if (!is_simulated(fd)) break;
        result = send(fd, reinterpret_cast<const void*>(a[1]), static_cast<std::size_t>(a[2]));
        return true;
    case SYS_read:
    case SYS_recvfrom:
        if (events_of_kernel_.contains(fd)) {
            charge_call(costs_[cost::event_write], &parts_.event);
            events_of_kernel_[fd].counter = 0;
            result = 8;
            return true;
        }
        if (!is_simulated(fd)) break;
        result = receive(fd, reinterpret_cast<void*>(a[1]), static_cast<std::size_t>(a[2]));
        return true;
    case SYS_close:
    case SYS_shutdown: {
        if (!is_simulated(fd)) break;
        charge_call(costs_[cost::call], &parts_.other);
        description& d = descriptions_[static_cast<std::size_t>(fd - first_descriptor)];
        const int peer = d.peer;
        if (number == SYS_close) d.is = description::kind::none;
        descriptions_[static_cast<std::size_t>(peer - first_descriptor)].peer_closed = true;
        make_ready(peer, EPOLLIN | EPOLLRDHUP);
        result = 0;
        return true;
    }
    default: break;
    }
    if (is_simulated(fd) && (number == SYS_getsockopt || number == SYS_setsockopt || number == SYS_fcntl)) {
        result = 0;
        return true;
    }
    charge(spent::kernel, costs_[cost::call]);
    return false;
}

}  // namespace dunlin::explorer
