// nats_sqlite.cpp - payments that arrive at least once and are booked exactly once: the sink keeps the ids of what it
// has booked, in the same transaction.
//
// NATS_URL names the servers (nats://127.0.0.1:4222 otherwise). `dunlin_cluster --around example_nats_sqlite` starts
// one for it.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include <sqlite3.h>

#include <dunlin/dunlin.hpp>
#include <dunlin/nats.hpp>

using namespace std::chrono_literals;
namespace nats = dunlin::nats;

struct payment {
    std::string id;
    int account, cents;
};

template <>
struct dunlin::nats::codec<payment> {
    static std::string encode(const payment& p) {
        return p.id + ' ' + std::to_string(p.account) + ' ' + std::to_string(p.cents);
    }
    static payment decode(std::string_view bytes) {
        payment p{};
        char id[40];
        if (std::sscanf(std::string(bytes).c_str(), "%39s %d %d", id, &p.account, &p.cents) != 3)
            throw std::invalid_argument("not a payment");
        p.id = id;
        return p;
    }
};

namespace {

// One connection, used by one goroutine at a time. SQLite's calls block their thread; the processor goes to others
// meanwhile.
class ledger {
public:
    explicit ledger(const char* file) {
        must(sqlite3_open(file, &db_));
        run("CREATE TABLE IF NOT EXISTS booked (id TEXT PRIMARY KEY); CREATE TABLE IF NOT EXISTS accounts (number INTEGER PRIMARY KEY, cents INTEGER)");
    }
    ~ledger() { sqlite3_close(db_); }
    ledger(const ledger&) = delete;
    ledger& operator=(const ledger&) = delete;

    // False if the payment is there already. Both tables change together, or none does.
    bool book(const payment& p) {
        const std::lock_guard guard(mutex_);
        return dunlin::blocking([&] {
            run("BEGIN IMMEDIATE");
            try {
                run("INSERT OR IGNORE INTO booked VALUES (" + quoted(p.id) + ")");
                const bool first = sqlite3_changes(db_) == 1;
                if (first) {
                    run("INSERT INTO accounts VALUES (" + std::to_string(p.account) + ", " + std::to_string(p.cents) +
                        ") ON CONFLICT (number) DO UPDATE SET cents = cents + excluded.cents");
                }
                run("COMMIT");
                return first;
            } catch (...) {
                sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
                throw;
            }
        });
    }
    long long total() {
        const std::lock_guard guard(mutex_);
        long long sum = -1;
        must(sqlite3_exec(db_, "SELECT sum(cents) FROM accounts", [](void* to, int, char** values, char**) {
            *static_cast<long long*>(to) = values[0] != nullptr ? std::atoll(values[0]) : 0;
            return 0;
        }, &sum, nullptr));
        return sum;
    }

private:
    void run(const std::string& sql) { must(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr)); }
    void must(int result) const {
        if (result != SQLITE_OK) throw std::runtime_error(sqlite3_errmsg(db_));
    }
    static std::string quoted(const std::string& text) {
        const std::unique_ptr<char, void (*)(void*)> q(sqlite3_mprintf("%Q", text.c_str()), sqlite3_free);
        return q.get();
    }
    dunlin::mutex mutex_;
    sqlite3* db_ = nullptr;
};

}  // namespace

int main() {
    const char* url = std::getenv("NATS_URL");
    return dunlin::run([&] {
        auto cluster = nats::connect(url != nullptr ? url : "nats://127.0.0.1:4222", {.name = "bookkeeper"});
        auto payments = cluster.queue<payment>("payments", {.ack_wait = 5s, .max_deliveries = 0});
        ledger books(":memory:");  // a real program would name a file

        constexpr int count = 200;
        long long expected = 0;
        for (int i = 0; i < count; ++i) {
            const payment p{"p" + std::to_string(i), i % 7, 100 + i};
            expected += p.cents;
            payments.send_async(p, nats::once_by(p.id));
            // a sender that does not know whether it has sent it sends it again: stored once
            if (i % 10 == 0) payments.send_async(p, nats::once_by(p.id));
        }
        if (!payments.flush().empty()) return 1;

        std::atomic<int> booked{0}, again{0}, ended{0};
        auto consumer = payments.consume({.in_flight = 16});
        dunlin::wait_group workers;
        for (int w = 0; w < 4; ++w) {
            workers.go([&] {
                while (auto d = consumer.recv()) {
                    (books.book(**d) ? booked : again) += 1;
                    // Every fifth time "the worker dies" here, between its effect and done(): the payment comes again,
                    // and changes nothing.
                    if (d->deliveries() == 1 && (*d)->cents % 5 == 0) continue;
                    d->done();
                    if (++ended == count) consumer.stop();
                }
            });
        }
        workers.wait();
        cluster.close();
        std::printf("%d payments booked, %d came again: %lld cents, expected %lld\n", booked.load(), again.load(),
            books.total(), expected);
        return books.total() == expected && booked == count ? 0 : 1;
    });
}
