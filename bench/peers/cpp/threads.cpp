// threads.cpp - dunlin's workloads with a thread of the operating system for each goroutine, and what the standard
// library has for them to wait.
//
// P is the number of CPUs that the threads are bound to. Where only one of them has something to do at a time and a
// thread from outside wakes it, no thread is bound, as no other peer's threads are.

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../churn.h"
#include "../../hogs.h"
#include "../../measure.h"
#include "../../registry.h"
#include "../../service.h"
#include "../../start_up.h"
#include "../../under_load.h"
#include "../../watched_pipe.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

cpu_set_t allowed_cpus() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail("sched_getaffinity failed");
    return allowed;
}

int processors = [] {
    const cpu_set_t allowed = allowed_cpus();
    return CPU_COUNT(&allowed);
}();

/// Binds this thread, and those that it starts from now on, to P of the CPUs that it may use.
void bind_to_processors() {
    const cpu_set_t allowed = allowed_cpus();
    if (CPU_COUNT(&allowed) < processors)
        fail("there are only " + std::to_string(CPU_COUNT(&allowed)) + " CPUs for the threads");
    cpu_set_t chosen;
    CPU_ZERO(&chosen);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&chosen) < processors; ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &chosen);
    }
    if (sched_setaffinity(0, sizeof chosen, &chosen) != 0) fail("sched_setaffinity failed");
}

void join_all(std::vector<std::thread>& threads) {
    for (std::thread& t : threads) t.join();
}

void spawn_join(const settings& s, results& r) {
    bind_to_processors();
    const long rounds = s.scaled(100'000) / 10;
    const double ns = ns_per_operation(rounds, [&] {
        long sum = 0;
        for (long i = 0; i < rounds; ++i) sum += std::async(std::launch::async, [] { return 1; }).get();
        expect("spawn-join", sum, rounds);
    });
    r.add("time", ns, "ns");
}

// ---- values handed over ---------------------------------------------------------------------------------------------

/// What one writes where there are no channels.
template <class T = long>
class bounded_queue {
public:
    explicit bounded_queue(std::size_t capacity) : capacity_(capacity) {}

    void push(T value) {
        std::unique_lock lock(mutex_);
        not_full_.wait(lock, [this] { return values_.size() < capacity_; });
        values_.push(std::move(value));
        lock.unlock();
        not_empty_.notify_one();
    }

    /// Nothing when it is closed and empty.
    std::optional<T> pop() {
        std::unique_lock lock(mutex_);
        not_empty_.wait(lock, [this] { return !values_.empty() || closed_; });
        if (values_.empty()) return std::nullopt;
        std::optional<T> value = std::move(values_.front());
        values_.pop();
        lock.unlock();
        not_full_.notify_one();
        return value;
    }

    void close() {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        not_empty_.notify_all();
    }

private:
    const std::size_t capacity_;
    std::mutex mutex_;
    std::condition_variable not_full_, not_empty_;
    std::queue<T> values_;
    bool closed_ = false;
};

/// A round trip takes two switches of threads, so a tenth as many are enough.
void ping_pong(const settings& s, results& r) {
    bind_to_processors();
    const long rounds = s.scaled(200'000) / 10;
    const double ns = ns_per_operation(rounds, [&] {
        bounded_queue<> request(1), reply(1);
        std::thread other([&] {
            while (const std::optional<long> n = request.pop()) reply.push(*n + 1);
            reply.close();
        });
        long sum = 0;
        for (long i = 0; i < rounds; ++i) {
            request.push(i);
            sum += reply.pop().value();
        }
        request.close();
        if (reply.pop()) fail("ping-pong: a reply too many");
        other.join();
        expect("ping-pong", sum, sum_below(rounds) + rounds);
    });
    r.add("time", ns, "ns");
}

constexpr std::size_t buffer = 128;

void buffered(const settings& s, results& r, long senders, long receivers) {
    bind_to_processors();
    const long each = s.scaled(1'000'000) / senders;
    const double ns = ns_per_operation(senders * each, [&] {
        bounded_queue<> c(buffer);
        std::vector<std::thread> sending, receiving;
        for (long i = 0; i < senders; ++i) {
            sending.emplace_back([&c, each] {
                for (long n = 0; n < each; ++n) c.push(n);
            });
        }
        std::vector<long> sums(static_cast<std::size_t>(receivers));
        for (long& result : sums) {
            receiving.emplace_back([&c, &result] {
                long sum = 0;
                while (const std::optional<long> n = c.pop()) sum += *n;
                result = sum;
            });
        }
        join_all(sending);
        c.close();
        join_all(receiving);
        long sum = 0;
        for (const long part : sums) sum += part;
        expect("buffered", sum, senders * sum_below(each));
    });
    r.add("time", ns, "ns");
}

void buffered_1_1(const settings& s, results& r) { buffered(s, r, 1, 1); }
void buffered_4_4(const settings& s, results& r) { buffered(s, r, 4, 4); }

void count_under_lock(results& r, long goroutines, long total) {
    bind_to_processors();
    const long each = total / goroutines;
    const double ns = ns_per_operation(goroutines * each, [&] {
        std::mutex lock;
        long counter = 0;
        std::vector<std::thread> all;
        for (long i = 0; i < goroutines; ++i) {
            all.emplace_back([&lock, &counter, each] {
                for (long n = 0; n < each; ++n) {
                    lock.lock();
                    ++counter;
                    lock.unlock();
                }
            });
        }
        join_all(all);
        expect("mutex", counter, goroutines * each);
    });
    r.add("time", ns, "ns");
}

void mutex_uncontended(const settings& s, results& r) { count_under_lock(r, 1, s.scaled(1'000'000)); }
void mutex_8(const settings& s, results& r) { count_under_lock(r, 8, s.scaled(1'000'000)); }

// ---- who sleeps, and who computes -----------------------------------------------------------------------------------

/// Without the 50 us of slack that the kernel gives a thread's timers if it is not asked.
void sleep_overshoot(const settings& s, results& r) {
    if (prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul) != 0) fail("sleep-overshoot: no timers without slack");
    std::vector<double> overshoot_us(static_cast<std::size_t>(s.scaled(1000)));
    for (double& over_us : overshoot_us) {
        const auto start = steady::now();
        std::this_thread::sleep_for(100us);
        over_us = ns_between(start + 100us, steady::now()) / 1e3;
    }
    r.add("p50", percentile(overshoot_us, 0.50), "us");
    r.add("p99", percentile(overshoot_us, 0.99), "us");
}

/// A thread for each call that sleeps in the kernel for 1 ms.
void blocking_1ms(const settings& s, results& r) {
    bind_to_processors();
    const long calls = s.scaled(1000);
    const auto once_ms = [calls] {
        std::vector<std::thread> all;
        const auto start = steady::now();
        for (long i = 0; i < calls; ++i) {
            all.emplace_back([] {
                const timespec t{0, 1'000'000};
                nanosleep(&t, nullptr);
            });
        }
        join_all(all);
        return ns_between(start, steady::now()) / 1e6;
    };
    r.add("time", once_ms(), "ms");
    std::vector<double> again_ms(20);
    for (double& took : again_ms) took = once_ms();
    r.add("again", percentile(again_ms, 0.5), "ms");
    r.add("threads", static_cast<double>(calls), "threads");
}

void hogs_wake(const settings& s, results& r) {
    bind_to_processors();
    const auto length = std::chrono::milliseconds(s.scaled(2000));
    std::vector<double> delays_ms;
    std::vector<worker> hogs(static_cast<std::size_t>(2 * processors));
    std::atomic<bool> stop = false;
    std::vector<std::thread> all;
    for (worker& hog : hogs) all.emplace_back([&hog, &stop] { hog.work_until(stop); });
    for (const auto end = steady::now() + length; steady::now() < end;) {
        const auto asleep_at = steady::now();
        std::this_thread::sleep_for(1ms);
        delays_ms.push_back(ns_between(asleep_at + 1ms, steady::now()) / 1e6);
    }
    stop = true;
    join_all(all);
    r.add("p50", percentile(delays_ms, 0.50), "ms");
    r.add("p99", percentile(delays_ms, 0.99), "ms");
}

/// From asking for a thread until it runs.
void wake_idle(const settings& s, results& r) {
    std::vector<double> delays_us(static_cast<std::size_t>(s.scaled(500)));
    for (double& delay_us : delays_us) {
        std::this_thread::sleep_for(1ms);
        steady::time_point ran_at;
        const auto asked_at = steady::now();
        std::thread([&ran_at] { ran_at = steady::now(); }).join();
        delay_us = ns_between(asked_at, ran_at) / 1e3;
    }
    r.add("p50", percentile(delays_us, 0.50), "us");
    r.add("p99", percentile(delays_us, 0.99), "us");
}

void pipe_wake(const settings& s, results& r) {
    std::vector<double> delays_us(static_cast<std::size_t>(s.scaled(1000)));
    watched_pipe p;
    if (fcntl(p.ends[0], F_SETFL, 0) != 0) fail("pipe-wake: fcntl failed");  // its reader shall wait in read()
    std::thread reader([&p] {
        for (char byte; read(p.ends[0], &byte, 1) == 1;) p.note();
    });
    splitmix64 random(1);
    for (double& delay_us : delays_us) delay_us = p.wake_us(std::chrono::microseconds(200 + random.next() % 800));
    p.close_write();
    reader.join();
    close(p.ends[0]);
    r.add("p50", percentile(delays_us, 0.50), "us");
    r.add("p99", percentile(delays_us, 0.99), "us");
}

// ---- a server -------------------------------------------------------------------------------------------------------

/// A socket that listens on a free port of 127.0.0.1.
int listen_on_loopback(int& port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof own;
    auto* address = reinterpret_cast<sockaddr*>(&own);
    if (fd < 0 || bind(fd, address, size) != 0 || listen(fd, 4096) != 0 || getsockname(fd, address, &size) != 0)
        fail("listen failed");
    port = ntohs(own.sin_port);
    return fd;
}

void serve(int fd, const std::vector<std::uint64_t>& table) {
    for (message m; recv(fd, &m, sizeof m, MSG_WAITALL) == static_cast<ssize_t>(sizeof m);) {
        answer(m, table);
        if (send(fd, &m, sizeof m, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof m))
            fail("mixed-service: an answer was not written");
    }
    close(fd);
}

/// A server that listens and has a thread for each connection, until it is destroyed.
class service {
public:
    service() : table_(make_service_table()), listener_(listen_on_loopback(port_)) {
        accepting_ = std::thread([this] {
            for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
                serving_.emplace_back([this, fd] { serve(fd, table_); });
        });
    }
    service(const service&) = delete;
    service& operator=(const service&) = delete;
    ~service() {
        shutdown(listener_, SHUT_RDWR);  // accept() returns
        accepting_.join();
        join_all(serving_);
        close(listener_);
    }

    int port() const { return port_; }

private:
    const std::vector<std::uint64_t> table_;
    int port_ = 0;
    const int listener_;
    std::vector<std::thread> serving_;
    std::thread accepting_;
};

/// Beside it one thread for each processor that never stops computing.
void mixed_service(const settings& s, results& r) {
    bind_to_processors();
    const service server;
    std::vector<worker> hogs(static_cast<std::size_t>(processors));
    std::atomic<bool> stop = false;
    std::vector<std::thread> hogging;
    for (worker& h : hogs) hogging.emplace_back([&h, &stop] { h.work_until(stop); });
    const auto start = steady::now();
    run_load(r, "mixed", server.port(), getpid(), mixed_load_words(s, static_cast<unsigned>(processors)));
    double units = 0;
    for (const worker& h : hogs) units += static_cast<double>(h.units.load(std::memory_order_relaxed));
    r.add("hogs", ns_between(start, steady::now()) * processors / units / 1e3, "us");
    stop = true;
    join_all(hogging);
}

void open_loop(const settings& s, results& r) {
    bind_to_processors();
    const service server;
    run_load(r, "open", server.port(), getpid(), open_load_words(s, static_cast<unsigned>(processors)));
}

/// Values of 64 to 4096 bytes, allocated by one thread and freed by another.
void alloc_churn(const settings& s, results& r) {
    bind_to_processors();
    const churn c(s.scaled(200'000));
    const double ns = ns_per_operation(c.values(), [&] {
        bounded_queue<churn::value> q(churn::capacity);
        std::thread producer([&] {
            c.produce([&q](churn::value v) { q.push(std::move(v)); });
            q.close();
        });
        c.expect_consumed([&q] { return q.pop(); });
        producer.join();
    });
    r.add("time", ns, "ns");
    r.add("peak-rss", status_bytes("VmHWM") / 1e6, "MB");
}

void start_up(const settings& s, results& r) { measure_start_up(s, r, "bench_threads_empty"); }

const registered all[] = {
    registered({"spawn-join", "start one thread and wait for its value, one after the other", spawn_join}),
    registered({"ping-pong", "a value to another thread and back over queues of one place", ping_pong}),
    registered({"buffered-1-1", "one sender, one receiver, a queue of capacity 128", buffered_1_1}),
    registered({"buffered-4-4", "four senders, four receivers, a queue of capacity 128", buffered_4_4}),
    registered({"mutex", "one thread locks and unlocks a std::mutex", mutex_uncontended}),
    registered({"mutex-8", "eight threads lock and unlock one std::mutex", mutex_8}),
    registered({"sleep-overshoot", "how much longer than 100 us a sleep of 100 us takes", sleep_overshoot}),
    registered({"blocking-1ms", "a thousand threads block for 1 ms", blocking_1ms}),
    registered({"hogs-wake", "how late a thread wakes beside two hogs for each CPU", hogs_wake}),
    registered({"mixed-service", "a thread for each connection, beside one hog for each CPU", mixed_service}),
    registered({"open-loop", "requests with 20 us of work, due at fixed times, at parts of the capacity", open_loop}),
    registered({"alloc-churn", "values that one thread allocates and another one frees", alloc_churn}),
    registered({"start-up", "a process that starts one thread, from exec to its end", start_up}),
    registered({"wake-idle", "from asking for a thread until it runs", wake_idle}),
    registered({"pipe-wake", "from a write to a pipe until the thread that reads it runs", pipe_wake}),
};

}  // namespace

const program this_program = {
    "threads",
    [] { return "glibc " + std::to_string(__GLIBC__) + "." + std::to_string(__GLIBC_MINOR__) + "; g++ " __VERSION__; },
    [](int procs) { processors = procs; },
    [] { return processors; },
};

}  // namespace bench
