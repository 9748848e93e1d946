// What a connection that breaks, and is made again, leaves as it was. Between client and server stands a relay that
// cuts where it is told.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include <malloc.h>
#include <poll.h>

#include "nats/servers.h"

namespace {

using namespace std::chrono_literals;
using nats_reconnect = support::nats_test;
using support::code_of;
using support::nats_servers;
namespace nats = dunlin::nats;

// Passes bytes on to `port`. Each connection is cut when so many have come from the server; while it is shut none is
// made.
class relay {
public:
    explicit relay(int port)
        : to_(port), port_(support::free_port()), listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const sockaddr_in a = fleet::on_loopback(port_);
        const int yes = 1;
        setsockopt(listening_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(listening_, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0 || listen(listening_, 16) != 0)
            throw std::runtime_error("bind");
        thread_ = std::thread([this] { run(); });
    }
    ~relay() {
        over_.store(true);
        thread_.join();
        close(listening_);
    }
    relay(const relay&) = delete;
    relay& operator=(const relay&) = delete;

    std::string url() const { return "nats://127.0.0.1:" + std::to_string(port_); }
    // From the next connection on.
    void lead_to(int port) { to_.store(port); }
    // From the next connection on; 0: never.
    void cut_after(std::size_t bytes) { limit_.store(bytes); }
    // Each one after a number of bytes that is drawn, up to this one.
    void cut_anywhere_below(std::size_t bytes) { random_below_.store(bytes); }
    void shut(bool yes) { shut_.store(yes); }
    // While it is so, servers do not learn of a connection that is cut.
    void keep_from_servers(bool yes) { kept_.store(yes); }
    // To all clients, once, as if their servers said it.
    void say(const std::string& words) {
        std::lock_guard guard(mutex_);
        said_ = words;
    }

private:
    struct pair {
        int client, server;
        std::size_t left;  // 0: for ever
    };

    void run() {
        std::minstd_rand random(7);
        std::vector<pair> pairs;
        std::vector<int> cut;  // the servers' sides
        std::vector<char> buffer(4096);
        while (!over_.load()) {
            std::vector<pollfd> fds{{listening_, POLLIN, 0}};
            for (const pair& p : pairs) fds.push_back({p.client, POLLIN, 0}), fds.push_back({p.server, POLLIN, 0});
            poll(fds.data(), fds.size(), 5);
            std::vector<pair> live;
            std::string said;
            {
                std::lock_guard guard(mutex_);
                said.swap(said_);
            }
            for (std::size_t i = 0; i < pairs.size(); ++i) {
                pair p = pairs[i];
                bool good =
                    !shut_.load() && (said.empty() || ::send(p.client, said.data(), said.size(), MSG_NOSIGNAL) > 0);
                if (good && fds[1 + 2 * i].revents != 0) good = pass(p.client, p.server, buffer, buffer.size());
                if (good && fds[2 + 2 * i].revents != 0) {
                    const std::size_t most = p.left == 0 ? buffer.size() : std::min(buffer.size(), p.left);
                    const std::size_t n = pass(p.server, p.client, buffer, most);
                    good = n > 0 && (p.left == 0 || (p.left -= n) > 0);
                }
                if (good) {
                    live.push_back(p);
                } else {
                    close(p.client);
                    cut.push_back(p.server);
                }
            }
            pairs = std::move(live);
            if (!kept_.load()) close_all(cut);
            if (fds[0].revents == 0) continue;
            pair p{accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC), socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                limit_.load()};
            if (const std::size_t below = random_below_.load(); below > 0) p.left = 1 + random() % below;
            const sockaddr_in a = fleet::on_loopback(to_.load());
            if (!shut_.load() && connect(p.server, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0) {
                pairs.push_back(p);
            } else {
                close(p.client), close(p.server);
            }
        }
        for (const pair& p : pairs) close(p.client), close(p.server);
        close_all(cut);
    }
    static void close_all(std::vector<int>& fds) {
        for (const int fd : fds) close(fd);
        fds.clear();
    }
    // The bytes passed on; 0: the end of one of them.
    static std::size_t pass(int from, int to, std::vector<char>& buffer, std::size_t most) {
        const ssize_t n = recv(from, buffer.data(), most, 0);
        for (ssize_t done = 0; done < n;) {
            const ssize_t m = ::send(to, buffer.data() + done, static_cast<std::size_t>(n - done), MSG_NOSIGNAL);
            if (m <= 0) return 0;
            done += m;
        }
        return n > 0 ? static_cast<std::size_t>(n) : 0;
    }

    std::atomic<int> to_;
    const int port_, listening_;
    std::atomic<std::size_t> limit_{0}, random_below_{0};
    std::atomic<bool> over_{false}, shut_{false}, kept_{false};
    std::mutex mutex_;
    std::string said_;
    std::thread thread_;
};

int port_of(nats_servers& s) { return std::stoi(s[0].url().substr(s[0].url().rfind(':') + 1)); }

// A text that tells when a byte of it is another's.
std::string filled(int number, std::size_t size) {
    std::string text = std::to_string(number) + ":";
    while (text.size() < size)
        text += static_cast<char>('a' + (text.size() * 7 + static_cast<std::size_t>(number)) % 26);
    return text;
}

void wait_until(const auto& so) {
    while (!so()) dunlin::sleep_for(2ms);
}

// test(servers, between), in a run().
void behind_a_relay(const auto& test) {
    nats_servers servers;
    relay between(port_of(servers));
    dunlin::run([&] { test(servers, between); });
}

nats::cluster connect_through(const relay& between) { return nats::connect(between.url(), {.reconnect_wait = 1ms}); }

// Returns when `link` knows it.
void cut_off(const nats::cluster& link, relay& between) {
    between.shut(true);
    wait_until([&] { return !link.stats().connected; });
}

// libnats' own reconnection goes on reading within the message at which the connection broke.
TEST_F(nats_reconnect, AConnectionThatBreaksWithinAMessageLeavesNothingOfItToTheNext) {
    behind_a_relay([](nats_servers& servers, relay& between) {
        constexpr int count = 12;
        constexpr std::size_t size = 100'000;
        auto sender = nats::connect(servers.urls());
        const nats::queue_options settings{.ack_wait = 500ms, .max_deliveries = 0};
        auto filling = sender.queue<std::string>("jobs", settings);
        for (int i = 0; i < count; ++i) filling.send(filled(i, size));
        between.cut_after(250'000);
        auto worker = connect_through(between);
        auto jobs = worker.queue<std::string>("jobs", settings);
        std::set<int> seen;
        auto consumer = jobs.consume({.in_flight = 4});
        while (seen.size() < count) {
            auto d = consumer.recv();
            const int number = std::stoi(**d);
            EXPECT_EQ(**d, filled(number, size));
            d->done();
            seen.insert(number);
        }
        consumer.stop();
        EXPECT_GE(worker.stats().reconnects, 4u);
        EXPECT_LT(worker.stats().reconnects, 50u);
        worker.close();
        sender.close();
    });
}

TEST_F(nats_reconnect, WhatIsPublishedMeanwhileIsSentInOrder) {
    behind_a_relay([](nats_servers& servers, relay& between) {
        auto listener = nats::connect(servers.urls()), speaker = connect_through(between);
        auto heard = listener.subscribe("news", {.buffer = 10'000});
        for (int round = 0; round < 5; ++round) {
            int next = 0;
            for (; next < 200; ++next) speaker.publish("news", std::to_string(next));
            speaker.flush();
            cut_off(speaker, between);
            for (; next < 400; ++next) speaker.publish("news", std::to_string(next));
            between.shut(false);
            for (; next < 600; ++next) speaker.publish("news", std::to_string(next));
            // What was on its way when it broke may be lost, and nothing else.
            for (int i = 0; i < 200; ++i) ASSERT_EQ(heard.recv()->data(), std::to_string(i));
            speaker.flush();
            speaker.publish("news", "over");
            int last = 199, count = 0;
            for (std::string text; (text = heard.recv()->data()) != "over"; ++count) {
                ASSERT_GT(std::stoi(text), last);
                last = std::stoi(text);
            }
            EXPECT_EQ(count, 400);
        }
        EXPECT_EQ(speaker.stats().reconnects, 5u);
        EXPECT_GE(speaker.stats().messages_out, 3'000u);  // of all the connections there were
        speaker.close();
        listener.close();
    });
}

TEST_F(nats_reconnect, TheLongestWaitBetweenTwoRoundsOfAttemptsIsKept) {
    nats_servers servers;
    dunlin::run([&] {
        auto door = dunlin::net::listen("tcp", "127.0.0.1:0");  // behind which there is no server
        std::atomic<int> attempts{0};
        auto counting = dunlin::spawn([&] {
            std::error_code ec;
            while (door.accept(ec)) ++attempts;
        });
        auto cluster = nats::connect(servers.urls() + ",nats://" + door.local_address().to_string(),
            {.reconnect_wait = std::chrono::milliseconds::max()});
        attempts = 0;
        servers[0].kill();
        support::eventually([&] { return attempts > 0; });
        dunlin::sleep_for(300ms);
        EXPECT_EQ(attempts, 1);
        cluster.close();
        door.close();
        counting.get();
    });
}

TEST_F(nats_reconnect, EightMegabytesAreKeptAndNoMore) {
    behind_a_relay([](nats_servers&, relay& between) {
        auto speaker = connect_through(between);
        cut_off(speaker, between);
        const std::string megabyte(1'000'000, 'x');
        for (int i = 0; i < 8; ++i) speaker.publish("news", megabyte);
        EXPECT_EQ(code_of([&] { speaker.publish("news", megabyte); }), nats::errc::connection_lost);
        EXPECT_EQ(
            code_of([&] { speaker.publish("news", std::string(9'000'000, 'x')); }), nats::errc::payload_too_large);
        between.shut(false);
        speaker.flush();
        speaker.publish("news", megabyte);
        speaker.close();
    });
}

TEST_F(nats_reconnect, HeadersCountInWhatIsKept) {
    behind_a_relay([](nats_servers& servers, relay& between) {
        auto listener = nats::connect(servers.urls()), speaker = connect_through(between);
        auto heard = listener.subscribe("news");
        cut_off(speaker, between);
        const std::string megabyte(1'000'000, 'x');
        const auto size = static_cast<std::size_t>(speaker.max_payload());
        // "NATS/1.0", "H: x" and the end of the headers, each with a line end
        const std::string largest(size - 10 - 6 - 2, 'x');
        EXPECT_EQ(code_of([&] { speaker.publish("news", largest + "x", {{"H", "x"}}); }), nats::errc::payload_too_large);
        speaker.publish("news", largest.substr(megabyte.size()), {{"H", "x"}});
        EXPECT_EQ(code_of([&] { speaker.publish("news", "", {{"H", megabyte}}); }), nats::errc::connection_lost);
        between.shut(false);
        EXPECT_TRUE(heard.recv()->data() == largest.substr(megabyte.size()));
        speaker.publish("news", largest, {{"H", "x"}});
        EXPECT_TRUE(heard.recv()->data() == largest);
        EXPECT_EQ(code_of([&] { speaker.publish("news", largest + "x", {{"H", "x"}}); }), nats::errc::payload_too_large);
        EXPECT_EQ(speaker.stats().dropped, 0u);
        speaker.close();
        listener.close();
    });
}

// Each was accepted while there was no server: what becomes of it is told by no call.
TEST_F(nats_reconnect, KeptMessagesThatAreNotSentAreCounted) {
    nats_servers large, small(1, "max_payload: 1000\n");
    relay between(port_of(large));
    dunlin::run([&] {
        auto listener = nats::connect(small.urls()), speaker = connect_through(between);
        auto heard = listener.subscribe("news");
        cut_off(speaker, between);
        between.lead_to(port_of(small));
        speaker.publish("news", std::string(2'000, 'x'));
        speaker.publish("news", "small");
        speaker.publish("news", "", {{"H", std::string(2'000, 'x')}});
        between.shut(false);
        EXPECT_EQ(heard.recv()->data(), "small");
        speaker.flush();
        EXPECT_EQ(speaker.stats().dropped, 2u);
        cut_off(speaker, between);
        for (int i = 0; i < 3; ++i) speaker.publish("news", "late");
        speaker.close();
        EXPECT_EQ(speaker.stats().dropped, 5u);
        EXPECT_FALSE(heard.recv_for(50ms));
        listener.close();
    });
}

TEST_F(nats_reconnect, WhatIsSubscribedEndedOrClosedMeanwhileIsSo) {
    behind_a_relay([](nats_servers& servers, relay& between) {
        auto other = nats::connect(servers.urls()), mine = connect_through(between);
        auto ended = mine.subscribe("ended");
        auto served = nats::serve(mine, "served", [](const nats::message&, const dunlin::context&) { return "yes"; });
        between.keep_from_servers(true);
        cut_off(mine, between);
        auto making = dunlin::spawn([&] { return mine.subscribe("fresh"); });
        // The server has not seen the cut yet: it hands a request to the lost connection, and nobody answers it.
        const auto ask_for_a_moment = [&] {
            other.request("served", "", dunlin::context::with_timeout({}, 100ms));
        };
        EXPECT_THROW(ask_for_a_moment(), dunlin::context_cancelled);
        between.keep_from_servers(false);
        for (bool seen = false; !seen;) {
            try {
                EXPECT_EQ(code_of(ask_for_a_moment), nats::errc::no_responders);
                seen = true;
            } catch (const dunlin::context_cancelled&) {
            }
        }
        ended.close();
        EXPECT_FALSE(ended.recv());
        served.drain();
        between.shut(false);
        auto fresh = making.get();
        other.publish("fresh", "first");
        EXPECT_EQ(fresh.recv()->data(), "first");
        EXPECT_EQ(code_of([&] { other.request("served", ""); }), nats::errc::no_responders);
        cut_off(mine, between);
        auto waiting = dunlin::spawn([&] { return code_of([&] { mine.flush(); }); });
        dunlin::sleep_for(5ms);
        mine.close();
        EXPECT_EQ(waiting.get(), nats::errc::closed);
        EXPECT_FALSE(fresh.recv());
        EXPECT_EQ(code_of([&] { mine.publish("fresh", ""); }), nats::errc::closed);
        EXPECT_EQ(code_of([&] { static_cast<void>(mine.subscribe("later")); }), nats::errc::closed);
        other.close();
    });
}

// libnats closes a connection while it reads on in what came with the server's last word, and tells that meanwhile:
// what is freed then must not be what it reads on with. What is freed is overwritten here, so that a use of it shows.
TEST_F(nats_reconnect, WhatComesBehindTheLastWordOfAServerMeetsAConnectionThatStillExists) {
    mallopt(M_PERTURB, 0xa5);
    behind_a_relay([](nats_servers&, relay& between) {
        auto link = connect_through(between);
        std::string last = "-ERR 'Slow Consumer'\r\n";
        while (last.size() < 31'000) last += "PING\r\n";  // libnats reads 32 KB at once
        const std::uint64_t rounds = support::sanitized ? 20 : 50;
        for (std::uint64_t i = 0; i < rounds; ++i) {
            link.flush();
            between.say(last);
            wait_until([&] { return link.stats().reconnects > i; });
        }
        link.flush();
        link.close();
    });
    mallopt(M_PERTURB, 0);
}

// Each natsConnection has buffers of some 64 KB, and is freed soon after it broke. (The sanitizers' allocators count
// nothing here.)
TEST_F(nats_reconnect, ConnectionsThatBreakLeaveNothingAllocated) {
    behind_a_relay([](nats_servers&, relay& between) {
        auto link = connect_through(between);
        auto heard = link.subscribe("news");
        const auto break_often = [&](std::uint64_t times) {
            const std::uint64_t before = link.stats().reconnects;
            while (link.stats().reconnects < before + times) {
                cut_off(link, between);
                between.shut(false);
                wait_until([&] { return link.stats().connected; });
                link.flush();
            }
        };
        constexpr std::uint64_t rounds = 40;
        break_often(10);
        const std::size_t before = mallinfo2().uordblks;
        break_often(rounds);
        support::eventually([&] { return mallinfo2().uordblks < before + rounds * 8'192; });
        link.publish("news", "x");
        EXPECT_EQ(heard.recv()->data(), "x");
        link.close();
    });
}

// Cut anywhere, again and again, while jobs are sent and done, requests answered, and subscriptions come and go.
TEST_F(nats_reconnect, CutAnywhereStress) {
    behind_a_relay([](nats_servers&, relay& between) {
        constexpr int count = support::sanitized ? 150 : 600;
        auto link = connect_through(between);
        auto jobs = link.queue<std::string>("jobs", {.ack_wait = 500ms, .max_deliveries = 0});
        auto served = nats::serve(
            link, "echo", [](const nats::message& m, const dunlin::context&) { return std::string(m.data()); });
        between.cut_anywhere_below(20'000);
        cut_off(link, between);
        between.shut(false);
        std::mutex mutex;
        std::set<int> seen;
        auto consumer = jobs.consume({.in_flight = 32});
        std::atomic<bool> over{false};
        dunlin::wait_group workers, others;
        for (int w = 0; w < 16; ++w) {
            workers.go([&] {
                while (auto d = consumer.recv()) {
                    const int number = std::stoi(**d);
                    EXPECT_EQ(**d, filled(number, 500));
                    try {
                        d->done();
                    } catch (const nats::error&) {
                        continue;  // it comes again
                    }
                    std::lock_guard guard(mutex);
                    seen.insert(number);
                    if (seen.size() == count) consumer.stop();
                }
            });
        }
        others.go([&] {
            for (int i = 0; !over.load(); ++i) {
                const auto [soon, cancel] = dunlin::with_timeout(dunlin::context::background(), 50ms);
                try {
                    const std::string text = filled(i, 300);
                    EXPECT_EQ(link.request("echo", text, soon).data(), text);
                } catch (const nats::error&) {
                } catch (const dunlin::context_cancelled&) {
                }
            }
        });
        others.go([&] {
            while (!over.load()) {
                try {
                    auto s = link.subscribe("news");
                    link.publish("news", "x");
                    static_cast<void>(s.recv_for(5ms));
                } catch (const nats::error&) {
                }
            }
        });
        for (int i = 0; i < count; ++i) jobs.send_async(filled(i, 500), nats::once_by(std::to_string(i)));
        EXPECT_TRUE(jobs.flush().empty());
        workers.wait();
        over.store(true);
        others.wait();
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
        EXPECT_GE(link.stats().reconnects, 5u);
        std::printf("%llu times connected anew\n", static_cast<unsigned long long>(link.stats().reconnects));
        link.close();
    });
}

}  // namespace
