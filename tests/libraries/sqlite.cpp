// sqlite.cpp - SQLite: a connection for each goroutine, all to one file, which it locks by fcntl() and sleeps for; and
// a database in memory.
#include <sqlite3.h>

#include "libraries/library.h"

namespace {

class database {
public:
    explicit database(const std::string& name) {
        if (sqlite3_open(name.c_str(), &handle_) != SQLITE_OK) throw std::runtime_error("sqlite3_open");
        sqlite3_busy_timeout(handle_, 100'000);
    }
    ~database() { sqlite3_close(handle_); }
    database(const database&) = delete;
    database& operator=(const database&) = delete;

    // The first column of the last row, or 0.
    long long ask(const std::string& text) {
        long long value = 0;
        const auto row = [](void* out, int, char** columns, char**) {
            *static_cast<long long*>(out) = columns[0] ? std::atoll(columns[0]) : 0;
            return 0;
        };
        char* message = nullptr;
        if (sqlite3_exec(handle_, text.c_str(), row, &value, &message) != SQLITE_OK) throw std::runtime_error(text +
            ": " + (message ? message : "?"));
        return value;
    }

private:
    sqlite3* handle_ = nullptr;
};

}  // namespace

int main() {
    libraries::program p(std::string("SQLite ") + sqlite3_libversion());
    const libraries::folder folder;
    const std::string file = folder.path + "/data";
    database(file).ask("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; "
        "CREATE TABLE t (goroutine INT, round INT)");
    constexpr int goroutines = 100, rounds = 3;
    libraries::in_goroutines({.goroutines = goroutines, .rounds = rounds}, [&](int i, int round) {
        const std::string number = std::to_string(i);
        database d(file);
        d.ask("PRAGMA synchronous = OFF");
        const long long before = d.ask("SELECT count(*) FROM t WHERE goroutine = " + number);
        d.ask("BEGIN IMMEDIATE; INSERT INTO t VALUES (" + number + ", " + std::to_string(round) + "); COMMIT");
        libraries::expect(d.ask("SELECT count(*) FROM t WHERE goroutine = " + number) == before + 1,
            "what was inserted is not there once");
        database memory(":memory:");
        libraries::expect(memory.ask("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) "
            "SELECT sum(i) FROM n") == 2001000,
            "another sum");
    });
    libraries::expect(database(file).ask("SELECT count(*) FROM t") == 3 * goroutines * rounds, "rows are missing");
    return p.result();
}
