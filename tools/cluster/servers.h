// servers.h - nats-server processes of one's own, on free ports of the loopback, each with a folder of its own. They
// end, by their ids, with the object; and when this process dies without destructors, a keeper ends them.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fleet {

inline std::string nats_server_path() {
    for (const char* p : {"/usr/sbin/nats-server", "/usr/bin/nats-server", "/usr/local/bin/nats-server"}) {
        if (access(p, X_OK) == 0) return p;
    }
    return {};
}

inline sockaddr_in on_loopback(int port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(static_cast<std::uint16_t>(port));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

// Ports that are free now. Below the range from which the kernel gives them to sockets that do not ask for one.
inline int free_port() {
    static int next = 10'000 + static_cast<int>(getpid() % 1'700) * 12;
    for (int i = 0; i < 2'000; ++i) {
        const int port = next++;
        if (next >= 32'000) next = 10'000;
        const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_in a = on_loopback(port);
        const bool is_free = bind(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
        close(s);
        if (is_free) return port;
    }
    throw std::runtime_error("no free port");
}

// A process that waits for the end of this one, and then kills what is still on its list and removes the folder. It
// knows both from a pipe, whose other end only this process has.
class keeper {
public:
    explicit keeper(const std::filesystem::path& folder) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
        const std::string name = folder.string();
        child_ = fork();
        if (child_ == 0) keep(ends[0], name.c_str());
        close(ends[0]);
        to_ = ends[1];
    }
    ~keeper() {
        close(to_);
        while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    keeper(const keeper&) = delete;
    keeper& operator=(const keeper&) = delete;

    void add(pid_t p) const { say(p); }
    void remove(pid_t p) const { say(-p); }  // before it is waited for: its number may be another's then

private:
    void say(pid_t p) const {
        if (write(to_, &p, sizeof p) < 0) throw std::runtime_error("keeper");
    }
    // In the child of a fork(): nothing but system calls.
    [[noreturn]] static void keep(int from, const char* folder) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, nullptr);
        dup2(from, 3);
        close_range(4, ~0u, 0);
        pid_t list[64] = {}, p = 0;
        while (read(3, &p, sizeof p) == sizeof p) {
            for (pid_t& place : list) {
                if (place == (p > 0 ? 0 : -p)) {
                    place = p > 0 ? p : 0;
                    break;
                }
            }
        }
        for (const pid_t left : list) {
            if (left > 0) ::kill(left, SIGKILL);
        }
        // While one is dying it may still make files.
        for (const pid_t left : list) {
            for (int i = 0; left > 0 && i < 500 && ::kill(left, 0) == 0; ++i) usleep(10'000);
        }
        sigemptyset(&all);
        sigprocmask(SIG_SETMASK, &all, nullptr);
        execl("/bin/rm", "rm", "-rf", folder, nullptr);
        _exit(1);
    }

    pid_t child_ = -1;
    int to_ = -1;
};

// A process of its own group: a Ctrl-C is for this one, which ends it.
inline pid_t start_process(const std::vector<std::string>& words) {
    std::vector<char*> argv;
    for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    pid_t made = -1;
    const int failed = posix_spawn(&made, argv[0], nullptr, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    if (failed != 0) throw std::runtime_error(words[0] + " does not start");
    return made;
}

class nats_server {
public:
    nats_server(const keeper& k, std::string name, std::filesystem::path folder, int port, const std::string& more,
        std::string address = "127.0.0.1")
        : keeper_(k),
          name_(std::move(name)),
          folder_(std::move(folder)),
          address_(std::move(address)),
          port_(port),
          more_(more) {
        std::filesystem::create_directories(folder_);
        configure(more);
    }
    ~nats_server() { kill(); }
    nats_server(const nats_server&) = delete;
    nats_server& operator=(const nats_server&) = delete;

    void configure(const std::string& more) const {
        std::ofstream(folder_ / "conf") << "server_name: " << name_ << "\nlisten: \"" << address_ << ':' << port_
                                        << "\"\nmax_payload: 8MB\nmax_pending: 64MB\n"
                                        << "jetstream { store_dir: \"" << (folder_ / "store").string() << "\" }\n"
                                        << more;
    }
    // From the next start on.
    void rename(const std::string& name) {
        name_ = name;
        configure(more_);
    }
    void start() {
        launch();
        wait_until_open();
    }
    // By `before`, a command that becomes what follows it.
    void launch(std::vector<std::string> before = {}) {
        for (const std::string& word : {nats_server_path(), std::string("-c"), (folder_ / "conf").string(),
                 std::string("-l"), (folder_ / "log").string()}) {
            before.push_back(word);
        }
        pid_ = start_process(before);
        keeper_.add(pid_);
    }
    void wait_until_open() const {
        for (int i = 0; i < 2'000; ++i) {
            const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            const sockaddr_in a = on_loopback(port_);
            const bool open = connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
            close(s);
            if (open) return;
            usleep(10'000);
        }
        throw std::runtime_error("nats-server does not listen");
    }
    // SIGSTOP: returns when it stands still; the signal alone is only on its way.
    void signal(int s) const {
        if (pid_ <= 0) return;
        ::kill(pid_, s);
        siginfo_t stopped{};
        for (int i = 0; s == SIGSTOP && i < 2'000; ++i) {
            if (waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WNOHANG) != 0 || stopped.si_pid != 0)
                return;
            usleep(1'000);
        }
    }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        keeper_.remove(pid_);
        while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
        pid_ = -1;
    }
    void wipe() const { std::filesystem::remove_all(folder_ / "store"); }
    std::string url(const std::string& user = "") const {
        return "nats://" + user + "127.0.0.1:" + std::to_string(port_);
    }
    const std::string& name() const noexcept { return name_; }
    pid_t pid() const noexcept { return pid_; }

private:
    const keeper& keeper_;
    std::string name_;
    std::filesystem::path folder_;
    const std::string address_;
    int port_;
    const std::string more_;
    pid_t pid_ = -1;
};

// One server, or a cluster of several.
class nats_servers {
public:
    explicit nats_servers(int count = 1, const std::string& more = "") : folder_(new_folder()), keeper_(folder_) {
        std::vector<int> ports;
        std::string routes;
        for (int i = 0; i < count; ++i) {
            ports.push_back(free_port());
            if (count > 1)
                routes += (i > 0 ? ", " : "") + std::string("nats://127.0.0.1:") + std::to_string(ports.back());
        }
        for (int i = 0; i < count; ++i) {
            std::string own = more;
            const std::string name = "s" + std::to_string(i + 1);
            const std::string port = std::to_string(ports[static_cast<std::size_t>(i)]);
            if (count > 1) own += "cluster { name: test, listen: 127.0.0.1:" + port + ", routes: [" + routes + "] }\n";
            all.push_back(std::make_unique<nats_server>(keeper_, name, folder_ / name, free_port(), own));
        }
        for (const auto& s : all) s->launch();
        for (const auto& s : all) s->wait_until_open();
    }
    ~nats_servers() {
        all.clear();
        std::error_code ec;
        std::filesystem::remove_all(folder_, ec);
    }
    nats_server& operator[](std::size_t i) { return *all[i]; }
    std::string urls() const {
        std::string text;
        for (const auto& s : all) text += (text.empty() ? "" : ",") + s->url();
        return text;
    }
    nats_server& named(const std::string& name) {
        for (const auto& s : all) {
            if (s->name() == name) return *s;
        }
        throw std::runtime_error("no server " + name);
    }
    const keeper& kept_by() const noexcept { return keeper_; }
    const std::filesystem::path& folder() const noexcept { return folder_; }

private:
    static std::filesystem::path new_folder() {
        char name[] = "/tmp/dunlin-nats-XXXXXX";
        if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
        return name;
    }

    std::filesystem::path folder_;
    keeper keeper_;

public:
    std::vector<std::unique_ptr<nats_server>> all;
};

}  // namespace fleet
