// libpq.cpp - PostgreSQL's client library, which waits in poll(): a connection for each goroutine, to a server of our
// own on a unix socket in a folder that goes away with it.
#include <libpq-fe.h>

#include "libraries/server.h"

namespace {

class connection {
public:
    explicit connection(const std::string& where) : handle_(PQconnectdb(where.c_str())) {}
    ~connection() { PQfinish(handle_); }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;

    bool good() const { return PQstatus(handle_) == CONNECTION_OK; }
    // The first value of the first row.
    std::string ask(const std::string& text) {
        PGresult* r = PQexec(handle_, text.c_str());
        const bool done = PQresultStatus(r) == PGRES_TUPLES_OK || PQresultStatus(r) == PGRES_COMMAND_OK;
        const std::string value = done && PQntuples(r) > 0 ? PQgetvalue(r, 0, 0) : "";
        PQclear(r);
        if (!done) throw std::runtime_error(text + ": " + PQerrorMessage(handle_));
        return value;
    }

private:
    PGconn* handle_;
};

}  // namespace

int main() {
    libraries::program p("libpq " + std::to_string(PQlibVersion()));
    std::filesystem::path programs;
    for (const auto& entry : std::filesystem::directory_iterator("/usr/lib/postgresql")) {
        if (std::filesystem::exists(entry.path() / "bin/initdb")) programs = entry.path() / "bin";
    }
    if (!libraries::expect(!programs.empty(), "no PostgreSQL server here")) return 1;
    const libraries::folder folder;
    const passwd* user = libraries::owner_of(folder, "postgres");
    const std::string data = folder.path + "/data", name = "-Utester";
    if (!libraries::expect(libraries::end_of(libraries::start(folder, user,
        {programs / "initdb", "-D", data, name, "-A", "trust", "-N", "--locale=C"})) == 0, "initdb")) return 1;
    const pid_t server = libraries::start(folder, user, {programs / "postgres", "-D", data, "-k", folder.path, "-c",
        "listen_addresses=", "-c", "max_connections=150",
        "-c", "shared_buffers=16MB", "-F"});
    const std::string where = "host=" + folder.path + " dbname=postgres user=tester";
    const bool ready = libraries::eventually([&] { return connection(where).good(); });
    if (libraries::expect(ready, "the server does not answer")) {
        connection(where).ask("CREATE TABLE t (goroutine int, round int)");
        libraries::in_goroutines({.goroutines = 60, .rounds = 3}, [&](int i, int round) {
            connection c(where);
            if (!libraries::expect(c.good(), "no connection")) return;
            c.ask("INSERT INTO t VALUES (" + std::to_string(i) + ", " + std::to_string(round) + ")");
            libraries::expect(c.ask("SELECT sum(i) FROM generate_series(1, 2000) i") == "2001000", "another sum");
            libraries::expect(c.ask("SELECT repeat('x', 100000)") == std::string(100'000, 'x'), "another text");
            c.ask("SELECT pg_sleep(0.005)");
        });
        libraries::expect(connection(where).ask("SELECT count(*) FROM t") == std::to_string(3 * 60 * 3),
            "rows are missing");
    }
    kill(server, SIGINT);
    libraries::end_of(server);
    return p.result();
}
