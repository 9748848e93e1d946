// nats_bench.cpp - dunlin::nats beside libnats alone and nats.go, in turns, with one server on this machine (NATS_URL).
//
//   dunlin_cluster --around dunlin_nats_bench [JOBS [ROUNDS [GO_TWIN]]]
// (./dev bench nats makes the twin, and runs it)
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <ctime>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nats/nats.h>

#include <dunlin/dunlin.hpp>
#include <dunlin/nats.hpp>

using namespace std::chrono_literals;
namespace nats = dunlin::nats;

namespace {

void must(natsStatus s) {
    if (s != NATS_OK) throw std::runtime_error(natsStatus_GetText(s));
}

double seconds(const std::function<void()>& f) {
    const auto began = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

// Processor time of a process, all its threads: what load beside it changes little.
double cpu_seconds(pid_t pid) {
    clockid_t its{};
    timespec t{};
    if (pid <= 0 || clock_getcpuclockid(pid, &its) != 0 || clock_gettime(its, &t) != 0) return 0;
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

std::size_t from_proc(const char* key) {
    std::ifstream in("/proc/self/status");
    for (std::string word; in >> word;) {
        if (word == key) {
            std::size_t n = 0;
            in >> n;
            return n;
        }
    }
    return 0;
}

constexpr std::size_t bytes = 100;
constexpr int window = 1024, workers = 64, in_flight = 256;

// libnats alone, on plain threads.
class alone {
public:
    explicit alone(const char* url) {
        natsOptions* o = nullptr;
        must(natsOptions_Create(&o));
        must(natsOptions_SetURL(o, url));
        must(natsConnection_Connect(&nc_, o));
        natsOptions_Destroy(o);
        jsOptions j;
        jsOptions_Init(&j);
        j.PublishAsync.MaxPending = window;
        must(natsConnection_JetStream(&js_, nc_, &j));
    }
    ~alone() {
        jsCtx_Destroy(js_);
        natsConnection_Destroy(nc_);
    }
    alone(const alone&) = delete;
    alone& operator=(const alone&) = delete;

    // With an id each, by which one that is sent again is stored once, or without.
    void publish(int count, const std::string& data, bool with_id) {
        for (int i = 0; i < count; ++i) {
            jsPubOptions o;
            jsPubOptions_Init(&o);
            const std::string id = "libnats-" + std::to_string(next_++);
            if (with_id) o.MsgId = id.c_str();
            must(js_PublishAsync(js_, "bench", data.data(), static_cast<int>(data.size()), &o));
        }
        must(js_PublishAsyncComplete(js_, nullptr));
    }
    // Taken ahead and acknowledged by as many threads as there are workers; each waits for the confirmation if asked
    // to.
    void consume(int count, bool confirmed) const {
        natsSubscription* s = nullptr;
        jsErrCode code{};
        jsSubOptions o;
        jsSubOptions_Init(&o);
        o.Stream = "bench";
        must(js_PullSubscribe(&s, js_, "bench", "workers", nullptr, &o, &code));
        std::mutex mutex;
        std::condition_variable more, less;
        std::deque<natsMsg*> taken;
        bool over = false;
        std::vector<std::thread> all;
        for (int w = 0; w < workers; ++w) {
            all.emplace_back([&] {
                for (;;) {
                    std::unique_lock held(mutex);
                    more.wait(held, [&] { return over || !taken.empty(); });
                    if (taken.empty()) return;
                    natsMsg* m = taken.front();
                    taken.pop_front();
                    if (taken.size() == in_flight / 2) less.notify_one();
                    held.unlock();
                    jsErrCode mine{};
                    must(confirmed ? natsMsg_AckSync(m, nullptr, &mine) : natsMsg_Ack(m, nullptr));
                    natsMsg_Destroy(m);
                }
            });
        }
        for (int got = 0; got < count;) {
            natsMsgList list{};
            must(natsSubscription_Fetch(&list, s, std::min(in_flight / 2, count - got), 10'000, &code));
            got += list.Count;
            {
                std::unique_lock held(mutex);
                less.wait(held, [&] { return taken.size() <= in_flight / 2; });
                taken.insert(taken.end(), list.Msgs, list.Msgs + list.Count);
                more.notify_all();
            }
            list.Count = 0;  // the workers destroy them
            natsMsgList_Destroy(&list);
        }
        {
            std::lock_guard held(mutex);
            over = true;
            more.notify_all();
        }
        for (std::thread& one : all) one.join();
        must(natsConnection_Flush(nc_));
        natsSubscription_Destroy(s);
    }
    void serve(const char* subject) {
        must(natsConnection_Subscribe(
            &served_, nc_, subject,
            [](natsConnection* nc, natsSubscription*, natsMsg* m, void*) {
                natsConnection_PublishString(nc, natsMsg_GetReply(m), "pong");
                natsMsg_Destroy(m);
            },
            nullptr));
        natsConnection_Flush(nc_);
    }
    void stop_serving() {
        natsSubscription_Destroy(served_);
        served_ = nullptr;
    }
    void request(int count, const char* subject) const {
        for (int i = 0; i < count; ++i) {
            natsMsg* answer = nullptr;
            must(natsConnection_RequestString(&answer, nc_, subject, "ping", 5'000));
            natsMsg_Destroy(answer);
        }
    }

private:
    natsConnection* nc_ = nullptr;
    jsCtx* js_ = nullptr;
    natsSubscription* served_ = nullptr;
    std::size_t next_ = 0;
};

// The Go twin (bench/peers/nats_go): a process that does what it is told, and says how many seconds that took.
class go_twin {
public:
    explicit go_twin(const char* file) {
        int to[2], from[2];
        if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to[0], 0);
        posix_spawn_file_actions_adddup2(&actions, from[1], 1);
        char* argv[] = {const_cast<char*>(file), nullptr};
        const int failed = posix_spawn(&pid_, file, &actions, nullptr, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(to[0]);
        close(from[1]);
        if (failed != 0) throw std::runtime_error(std::string(file) + " does not start");
        to_ = fdopen(to[1], "w");
        from_ = fdopen(from[0], "r");
    }
    ~go_twin() {
        std::fclose(to_);
        std::fclose(from_);
        waitpid(pid_, nullptr, 0);
    }
    go_twin(const go_twin&) = delete;
    go_twin& operator=(const go_twin&) = delete;

    double seconds(const char* what, int count) const {
        std::fprintf(to_, "%s %d\n", what, count);
        std::fflush(to_);
        double s = 0;
        if (std::fscanf(from_, "%lf", &s) != 1) throw std::runtime_error("the Go twin has ended");
        return s;
    }
    pid_t pid() const noexcept { return pid_; }

private:
    pid_t pid_ = -1;
    std::FILE *to_ = nullptr, *from_ = nullptr;
};

void consume(const nats::queue<std::string>& jobs, int count) {
    std::atomic<int> done{0};
    auto consumer = jobs.consume({.in_flight = in_flight});
    dunlin::wait_group all;
    for (int w = 0; w < workers; ++w) {
        all.go([&] {
            while (auto d = consumer.recv()) {
                d->done();
                if (++done == count) consumer.stop();
            }
        });
    }
    all.wait();
}

// How late a goroutine comes that sleeps for a millisecond, again and again, while f() goes on: milliseconds, the worst
// of 99 in a hundred.
double lateness(const std::function<void()>& f) {
    std::atomic<bool> over{false};
    std::vector<double> late;
    dunlin::wait_group others;
    others.go([&] {
        while (!over) {
            const auto due = dunlin::clock::now() + 1ms;
            dunlin::sleep_until(due);
            late.push_back(std::chrono::duration<double, std::milli>(dunlin::clock::now() - due).count());
        }
    });
    f();
    over = true;
    others.wait();
    std::sort(late.begin(), late.end());
    return late[late.size() * 99 / 100];
}

// One thing that is measured, in the words of the table.
struct figure {
    const char* what;
    const char* by;
    std::function<double()> measure;  // things per second
    int things;
    pid_t client;
    struct round {
        double rate, client_cpu, server_cpu;  // microseconds for each thing
        double server_busy;                   // processors
    };
    std::vector<round> rounds = {};
    void run(pid_t server) {
        const double mine = cpu_seconds(client), its = cpu_seconds(server);
        const double rate = measure(), took = cpu_seconds(server) - its;
        rounds.push_back(
            {rate, (cpu_seconds(client) - mine) / things * 1e6, took / things * 1e6, took * rate / things});
    }
    double median(double round::*of) {
        std::sort(rounds.begin(), rounds.end(), [&](const round& a, const round& b) { return a.*of < b.*of; });
        return rounds[rounds.size() / 2].*of;
    }
};

}  // namespace

int main(int argc, char** argv) {
    const char *url = std::getenv("NATS_URL"), *server_pid = std::getenv("NATS_SERVER_PID");
    const pid_t server = server_pid != nullptr ? std::atoi(server_pid) : 0;
    const int count = argc > 1 ? std::atoi(argv[1]) : 20'000, rounds = argc > 2 ? std::atoi(argv[2]) : 5,
              requests = count / 10;
    if (url == nullptr || count < 100 || rounds < 1) {
        std::fprintf(stderr,
            "NATS_URL must name a server: dunlin_cluster --around dunlin_nats_bench [JOBS [ROUNDS [GO_TWIN]]]\n");
        return 2;
    }
    return dunlin::run([&] {
        const std::string data(bytes, 'x');
        auto cluster = nats::connect(url);
        auto jobs = cluster.queue<std::string>("bench");
        alone plain(url);
        std::optional<go_twin> go;
        if (argc > 3) go.emplace(argv[3]);

        const auto here = [](int n, const std::function<void()>& f) { return n / seconds(f); };
        const auto on_thread = [&](int n, const std::function<void()>& f) {
            double rate = 0;
            dunlin::blocking([&] { rate = here(n, f); });
            return rate;
        };
        const char* published = "published and confirmed, with an id each";
        const char* without = "published and confirmed, without ids";
        const char* confirmed = "consumed, each acknowledgement waited for";
        const char* unconfirmed = "consumed, acknowledgements not waited for";
        const char* asked = "requests one after the other";
        // What is published by one is consumed by the next.
        std::vector<figure> all;
        const auto add = [&](const char* what, const char* by, std::function<double()> f, pid_t client = getpid()) {
            all.push_back({what, by, std::move(f), what == asked ? requests : count, client});
        };
        const auto add_go = [&](const char* what, const char* command, int n) {
            if (go) add(what, "nats.go", [&go, command, n] { return n / go->seconds(command, n); }, go->pid());
        };
        add(published, "dunlin", [&] {
            return here(count, [&] {
                for (int i = 0; i < count; ++i) jobs.send_async(data);
                if (!jobs.flush().empty()) throw std::runtime_error("not confirmed");
            });
        });
        add(confirmed, "dunlin", [&] { return here(count, [&] { consume(jobs, count); }); });
        add(published, "libnats", [&] { return on_thread(count, [&] { plain.publish(count, data, true); }); });
        add(confirmed, "libnats", [&] { return on_thread(count, [&] { plain.consume(count, true); }); });
        add_go(published, "publish-id", count);
        add_go(confirmed, "consume-confirmed", count);
        add(without, "libnats", [&] { return on_thread(count, [&] { plain.publish(count, data, false); }); });
        add(unconfirmed, "libnats", [&] { return on_thread(count, [&] { plain.consume(count, false); }); });
        add_go(without, "publish", count);
        add_go(unconfirmed, "consume", count);
        // Each answers itself, over the connection that asks.
        add(asked, "dunlin", [&] {
            const auto served = nats::serve(cluster, "ping-dunlin",
                [](const nats::message&, const dunlin::context&) { return std::string("pong"); });
            return here(requests, [&] {
                for (int i = 0; i < requests; ++i) static_cast<void>(cluster.request("ping-dunlin", "ping"));
            });
        });
        add(asked, "libnats", [&] {
            plain.serve("ping");
            const double rate = on_thread(requests, [&] { plain.request(requests, "ping"); });
            plain.stop_serving();
            return rate;
        });
        add_go(asked, "request", requests);

        for (int r = 0; r < rounds; ++r) {
            for (figure& one : all) one.run(server);
        }
        std::printf(
            "things per second, medians of %d rounds in turns: %d jobs of %zu bytes, window %d, %d workers; %d requests\n"
            "behind it the processor time of each thing, of the client and of the server in microseconds, and how many processors the server "
            "has used\n",
            rounds, count, data.size(), window, workers, requests);
        for (const char* what : {published, confirmed, without, unconfirmed, asked}) {
            double mine = 0;
            for (figure& one : all) {
                if (one.what != what) continue;
                const double rate = one.median(&figure::round::rate);
                if (one.by == std::string("dunlin")) mine = rate;
                std::printf("%10.0f %6.1f %6.1f %5.2f  %s, %s", rate, one.median(&figure::round::client_cpu),
                    one.median(&figure::round::server_cpu), one.median(&figure::round::server_busy), what, one.by);
                if (mine > 0 && mine != rate) std::printf(": dunlin is %.2f of it", mine / rate);
                std::puts("");
            }
        }

        const std::size_t threads = from_proc("Threads:"), kilobytes = from_proc("VmRSS:");
        std::vector<nats::subscription> many;
        for (int i = 0; i < 1'000; ++i) many.push_back(cluster.subscribe("s" + std::to_string(i)));
        std::printf("1000 subscriptions: %zu more threads, %.1f KB each\n", from_proc("Threads:") - threads,
            static_cast<double>(from_proc("VmRSS:") - kilobytes) / 1'000);
        many.clear();

        // Deliveries that are held, of jobs of 100 bytes.
        constexpr int held_jobs = 10'000;
        for (int i = 0; i < held_jobs; ++i) jobs.send_async(data);
        if (!jobs.flush().empty()) throw std::runtime_error("not confirmed");
        const std::size_t before = from_proc("VmRSS:");
        {
            auto consumer = jobs.consume({.in_flight = held_jobs});
            std::vector<nats::delivery<std::string>> held;
            while (held.size() < held_jobs) held.push_back(std::move(*consumer.recv()));
            std::printf("%d deliveries held: %.2f KB each\n", held_jobs,
                static_cast<double>(from_proc("VmRSS:") - before) / held_jobs);
        }
        if (server > 0) {
            // Those that were handed back are taken first; then the server answers nothing while jobs are sent.
            consume(jobs, held_jobs);
            auto many_at_once = cluster.queue<std::string>("bench", {.window = held_jobs});
            kill(server, SIGSTOP);
            const std::size_t empty = from_proc("VmRSS:");
            for (int i = 0; i < held_jobs; ++i) many_at_once.send_async(data);
            std::printf("%d jobs sent and not confirmed: %.2f KB each\n", held_jobs,
                static_cast<double>(from_proc("VmRSS:") - empty) / held_jobs);
            kill(server, SIGCONT);
            if (!many_at_once.flush().empty()) throw std::runtime_error("not confirmed");
            consume(jobs, held_jobs);
        }
        const double alone_late = lateness([] { dunlin::sleep_for(1s); });
        const double late = lateness([&] {
            for (int i = 0; i < count; ++i) jobs.send_async(data);
            if (!jobs.flush().empty()) throw std::runtime_error("not confirmed");
            consume(jobs, count);
        });
        std::printf(
            "a goroutine that sleeps for 1 ms is late by %.2f ms (99 of 100) while jobs are sent and taken; by %.2f ms without\n",
            late, alone_late);
        cluster.close();
        return 0;
    });
}
