// servers.h - nats-server processes of a test's own, on free ports of the loopback, each with a folder of its own; ended, by their ids, with the object.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dunlin/nats.hpp>
#include "support/build.h"
#include "support/runtime_test.h"

namespace support {

inline std::string nats_server_path() {
    for (const char* p : {"/usr/sbin/nats-server", "/usr/bin/nats-server", "/usr/local/bin/nats-server"}) {
        if (access(p, X_OK) == 0) return p;
    }
    return {};
}

// Ports that are free now. Below the range from which the kernel gives them to sockets that do not ask for one.
inline int free_port() {
    static int next = 10'000 + static_cast<int>(getpid() % 1'700) * 12;
    for (int i = 0; i < 2'000; ++i) {
        const int port = next++;
        if (next >= 32'000) next = 10'000;
        const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in a{};
        a.sin_family = AF_INET;
        a.sin_port = htons(static_cast<std::uint16_t>(port));
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const bool is_free = bind(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
        close(s);
        if (is_free) return port;
    }
    throw std::runtime_error("no free port");
}

class nats_server {
public:
    nats_server(std::string name, std::filesystem::path folder, int port, std::string more)
        : name_(std::move(name)), folder_(std::move(folder)), port_(port), more_(std::move(more)) {
        std::filesystem::create_directories(folder_);
        configure(more_);
    }
    ~nats_server() { kill(); }
    nats_server(const nats_server&) = delete;
    nats_server& operator=(const nats_server&) = delete;

    void configure(const std::string& more) {
        std::ofstream(folder_ / "conf") << "server_name: " << name_ << "\nlisten: 127.0.0.1:" << port_ << "\nmax_payload: 8MB\nmax_pending: 64MB\n"
                                        << "jetstream { store_dir: \"" << (folder_ / "store").string() << "\" }\n" << more;
    }
    void start() {
        const std::string path = nats_server_path(), conf = (folder_ / "conf").string(), log = (folder_ / "log").string();
        const char* argv[] = {path.c_str(), "-c", conf.c_str(), "-l", log.c_str(), nullptr};
        posix_spawnattr_t attributes;
        posix_spawnattr_init(&attributes);
        sigset_t none;
        sigemptyset(&none);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setpgroup(&attributes, 0);  // a Ctrl-C is for the test, which ends it
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
        if (posix_spawn(&pid_, path.c_str(), nullptr, &attributes, const_cast<char**>(argv), environ) != 0) throw std::runtime_error("nats-server");
        posix_spawnattr_destroy(&attributes);
        wait_until_open();
    }
    void signal(int s) const {
        if (pid_ > 0) ::kill(pid_, s);
    }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        int status = 0;
        while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = -1;
    }
    void wipe() const { std::filesystem::remove_all(folder_ / "store"); }
    std::string url(const std::string& user = "") const { return "nats://" + user + "127.0.0.1:" + std::to_string(port_); }
    const std::string& name() const noexcept { return name_; }

private:
    void wait_until_open() const {
        for (int i = 0; i < 2'000; ++i) {
            const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            sockaddr_in a{};
            a.sin_family = AF_INET;
            a.sin_port = htons(static_cast<std::uint16_t>(port_));
            a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            const bool open = connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
            close(s);
            if (open) return;
            usleep(10'000);
        }
        throw std::runtime_error("nats-server does not listen");
    }

    std::string name_;
    std::filesystem::path folder_;
    int port_;
    std::string more_;
    pid_t pid_ = -1;
};

// One server, or a cluster of several.
class nats_servers {
public:
    explicit nats_servers(int count = 1, const std::string& more = "") {
        char folder[] = "/tmp/dunlin-nats-XXXXXX";
        if (mkdtemp(folder) == nullptr) throw std::runtime_error("mkdtemp");
        folder_ = folder;
        std::vector<int> ports;
        std::string routes;
        for (int i = 0; i < count; ++i) {
            ports.push_back(free_port());
            if (count > 1) routes += (i > 0 ? ", " : "") + std::string("nats://127.0.0.1:") + std::to_string(ports.back());
        }
        for (int i = 0; i < count; ++i) {
            std::string own = more;
            const std::string name = "s" + std::to_string(i + 1);
            const std::string port = std::to_string(ports[static_cast<std::size_t>(i)]);
            if (count > 1) own += "cluster { name: test, listen: 127.0.0.1:" + port + ", routes: [" + routes + "] }\n";
            all.push_back(std::make_unique<nats_server>(name, folder_ / name, free_port(), own));
        }
        for (const auto& s : all) s->start();
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
    std::vector<std::unique_ptr<nats_server>> all;

private:
    std::filesystem::path folder_;
};

class nats_test : public runtime_test {
protected:
    void SetUp() override {
        if (nats_server_path().empty()) GTEST_SKIP() << "nats-server is not installed";
        allow(std::chrono::seconds(120));
    }
};

}  // namespace support
