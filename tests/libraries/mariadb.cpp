// mariadb.cpp - MariaDB's client library, which waits in poll(): a connection for each goroutine, to a server of our
// own on a unix socket in a folder that goes away with it.
#include <mysql.h>

#include <utility>

#include "libraries/server.h"

namespace {

class connection {
public:
    explicit connection(const std::string& socket) : handle_(mysql_init(nullptr)) {
        good_ = mysql_real_connect(handle_, nullptr, "root", "", "", 0, socket.c_str(), 0) != nullptr;
    }
    ~connection() { mysql_close(handle_); }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;

    bool good() const { return good_; }
    // The first value of the first row.
    std::string ask(const std::string& text) {
        if (mysql_real_query(handle_, text.data(), text.size()) != 0) {
            throw std::runtime_error(text + ": " + mysql_error(handle_));
        }
        MYSQL_RES* r = mysql_store_result(handle_);
        if (r == nullptr) return "";
        MYSQL_ROW row = mysql_fetch_row(r);
        std::string value = row != nullptr && row[0] != nullptr ? std::string(row[0], mysql_fetch_lengths(r)[0]) : "";
        mysql_free_result(r);
        return value;
    }

private:
    MYSQL* handle_;
    bool good_ = false;
};

// Its system tables, made by a script of the distribution's.
bool install(const libraries::folder& folder, const passwd* user, const std::string& data) {
    return libraries::end_of(libraries::start(folder, user, {"/usr/bin/mariadb-install-db", "--no-defaults",
        "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db"})) == 0;
}

}  // namespace

int main() {
    libraries::program p("mariadb " + std::string(mysql_get_client_info()));
    const libraries::folder folder;
    const passwd* user = libraries::owner_of(folder, "mysql");
    const std::string data = folder.path + "/data", socket = folder.path + "/socket";
    if (!libraries::expect(install(folder, user, data), "mariadb-install-db")) return 1;
    const pid_t server = libraries::start(folder, user, {"/usr/sbin/mariadbd", "--no-defaults", "--datadir=" + data,
        "--socket=" + socket, "--skip-networking", "--max-connections=150", "--innodb-buffer-pool-size=16M"});
    if (mysql_library_init(0, nullptr, nullptr) != 0) return 1;
    const bool ready = libraries::eventually([&] { return connection(socket).good(); });
    if (libraries::expect(ready, "the server does not answer")) {
        connection(socket).ask("CREATE DATABASE d");
        connection(socket).ask("CREATE TABLE d.t (goroutine int, round int)");
        libraries::in_goroutines({.goroutines = 60, .rounds = 3}, [&](int i, int round) {
            connection c(socket);
            if (!libraries::expect(c.good(), "no connection")) return;
            c.ask("USE d");
            c.ask("INSERT INTO d.t VALUES (" + std::to_string(i) + ", " + std::to_string(round) + ")");
            libraries::expect(c.ask("SELECT sum(seq) FROM seq_1_to_2000") == "2001000", "another sum");
            libraries::expect(c.ask("SELECT repeat('x', 100000)") == std::string(100'000, 'x'), "another text");
            c.ask("SELECT sleep(0.005)");
        });
        libraries::expect(connection(socket).ask("SELECT count(*) FROM d.t") == std::to_string(3 * 60 * 3),
            "rows are missing");
    }
    kill(server, SIGTERM);
    libraries::end_of(server);
    return p.result();
}
