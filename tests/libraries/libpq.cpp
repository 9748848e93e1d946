// libpq.cpp - PostgreSQL's client library, which waits in poll(): a connection for each goroutine, to a server of our
// own on a unix socket in a folder that goes away with it. The server refuses to be root's: then it is another user's.
#include <libpq-fe.h>

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <vector>

#include "libraries/library.h"

namespace {

// A program of the server's, in the background, as an unprivileged user, in a process group of its own.
pid_t start(const libraries::folder& folder, const passwd* user, std::vector<std::string> arguments) {
    const pid_t process = fork();
    if (process != 0) return process;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (user && (setgroups(0, nullptr) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)) _exit(126);
    const int log = open((folder.path + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    dup2(log, 1);
    dup2(log, 2);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    if (chdir(folder.path.c_str()) != 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
}

int end_of(pid_t process) {
    int status = -1;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

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
    const passwd* user = nullptr;
    if (getuid() == 0) {
        user = getpwnam("postgres");
        if (!user) user = getpwnam("nobody");
        if (!user || chown(folder.path.c_str(), user->pw_uid, user->pw_gid) != 0) return 1;
    }
    const std::string data = folder.path + "/data", name = "-Utester";
    if (!libraries::expect(end_of(start(folder, user,
        {programs / "initdb", "-D", data, name, "-A", "trust", "-N", "--locale=C"})) == 0, "initdb")) return 1;
    const pid_t server = start(folder, user, {programs / "postgres", "-D", data, "-k", folder.path, "-c",
        "listen_addresses=", "-c", "max_connections=150",
        "-c", "shared_buffers=16MB", "-F"});
    const std::string where = "host=" + folder.path + " dbname=postgres user=tester";
    bool ready = false;
    for (int i = 0; i < 300 && !ready; ++i) {
        ready = connection(where).good();
        if (!ready) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
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
    end_of(server);
    return p.result();
}
