// Tracing from inside a program: begin, end, and what is refused. What the events say: tests/tools/trace_test.py.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <dunlin/dunlin.hpp>
#include <dunlin/trace.hpp>

#include "support/build.h"

namespace {

using namespace std::chrono_literals;

class trace_file {
public:
    trace_file() : path_(testing::TempDir() + "dunlin_trace_" + std::to_string(getpid())) {}
    ~trace_file() { std::remove(path_.c_str()); }
    const std::string& path() const noexcept { return path_; }
    std::string content() const {
        std::ifstream in(path_, std::ios::binary);
        std::ostringstream all;
        all << in.rdbuf();
        return all.str();
    }

private:
    std::string path_;
};

bool is_whole(const std::string& content) {
    return content.substr(0, 8) == "DUNTRACE" && content.size() > 6 && content.substr(content.size() - 6) == "stop()";
}

void talk(int rounds) {
    const dunlin::chan<int> there, back;
    dunlin::task<void> other = dunlin::spawn([=] {
        for (int i = 0; i < rounds; ++i) back.send(*there.recv());
    });
    for (int i = 0; i < rounds; ++i) {
        there.send(i);
        EXPECT_EQ(*back.recv(), i);
    }
    other.get();
}

TEST(Trace, OfAProgramIsInTheFileWhenStopReturns) {
    const trace_file file;
    dunlin::run([&] {
        EXPECT_FALSE(dunlin::trace::running());
        dunlin::trace::start(file.path());
        EXPECT_TRUE(dunlin::trace::running());
        talk(10);
        {
            const dunlin::trace::task request("a request of this name");
            EXPECT_NE(request.id(), 0u);
            const dunlin::trace::region part("a region of this name");
            dunlin::trace::message("category", "a message of this text");
        }
        dunlin::trace::stop();
        EXPECT_FALSE(dunlin::trace::running());
    });
    const std::string content = file.content();
    EXPECT_TRUE(is_whole(content));
    EXPECT_NE(content.find("a request of this name"), content.npos);
    EXPECT_NE(content.find("a region of this name"), content.npos);
    EXPECT_NE(content.find("a message of this text"), content.npos);
    EXPECT_NE(content.find("trace_test.cpp:"), content.npos);
}

// OBS-03.
TEST(Trace, MayBeginAndEndAThousandTimesWhileGoroutinesGoOn) {
    const trace_file file;
    for (const unsigned processors : {1u, 2u, 8u}) {
        dunlin::run({.max_procs = processors}, [&] {
            std::atomic<bool> over{false};
            dunlin::wait_group others;
            for (int k = 0; k < 4; ++k) {
                others.go([&] {
                    while (!over) {
                        talk(3);
                        const dunlin::trace::task t("task");
                        const dunlin::trace::region r("region");
                        dunlin::spawn([] { dunlin::yield(); }).get();
                        dunlin::blocking([] {});
                        dunlin::sleep_for(1us);
                    }
                });
            }
            constexpr int rounds = support::sanitized ? 100 : 333;
            for (int i = 0; i < rounds; ++i) {
                if (i % 4 == 3) {
                    dunlin::trace::start_recorder({.bytes = 1 << 20});
                    std::ostringstream out;
                    dunlin::trace::write_recorder(out);
                    EXPECT_EQ(out.str().substr(0, 8), "DUNTRACE");
                    dunlin::trace::stop_recorder();
                } else {
                    dunlin::trace::start(file.path());
                    if (i % 4 == 1) dunlin::yield();
                    dunlin::trace::stop();
                    ASSERT_TRUE(is_whole(file.content()));
                }
            }
            over = true;
            others.wait();
        });
    }
}

// go1.24 src/os/signal/signal_test.go, TestSignalTrace; OBS-05.
TEST(Trace, MayBeginAndEndWhileSignalsCome) {
    const trace_file file;
    for (const unsigned processors : {1u, 2u, 8u}) {
        dunlin::run({.max_procs = processors}, [&] {
            const dunlin::receiver<int> hups = dunlin::signal_channel({SIGHUP});
            std::atomic<bool> over{false};
            std::atomic<int> received{0};
            dunlin::wait_group listener;
            listener.go([&] {
                while (!over) {
                    kill(getpid(), SIGHUP);
                    EXPECT_EQ(hups.recv(), SIGHUP);
                    ++received;
                }
            });
            constexpr int rounds = support::sanitized ? 20 : 100;
            for (int i = 0; i < rounds; ++i) {
                dunlin::trace::start(file.path());
                const int before = received;
                if (i % 10 == 0) {
                    while (received == before) dunlin::yield();
                }
                dunlin::trace::stop();
                ASSERT_TRUE(is_whole(file.content()));
            }
            over = true;
            listener.wait();
            EXPECT_GE(received.load(), rounds / 10);
        });
    }
}

// What the smaller one kept is given up, and not looked for in the larger one's room.
TEST(Trace, ARecorderMayBeLargerThanTheOneBefore) {
    dunlin::run([] {
        const auto work = [] {
            for (int i = 0; i < 20'000; ++i) dunlin::spawn([] {}).get();
        };
        for (std::size_t bytes = std::size_t{1} << 18; bytes <= std::size_t{1} << 25; bytes *= 2) {
            dunlin::trace::start_recorder({.bytes = bytes});
            work();
            std::ostringstream out;
            dunlin::trace::write_recorder(out);
            EXPECT_TRUE(out.str().starts_with("DUNTRACE"));
            dunlin::trace::stop_recorder();
        }
    });
}

TEST(Trace, RunsOnceAtATime) {
    const trace_file file;
    const auto busy = [](auto f) {
        try {
            f();
        } catch (const std::system_error& e) {
            return e.code() == std::errc::device_or_resource_busy;
        }
        return false;
    };
    const auto starts = [&] { dunlin::trace::start(file.path()); };
    const auto records = [] { dunlin::trace::start_recorder(); };
    dunlin::trace::start(file.path());  // from a plain thread
    EXPECT_TRUE(busy(starts));
    EXPECT_TRUE(busy(records));
    dunlin::trace::stop_recorder();  // it is none
    EXPECT_TRUE(dunlin::trace::running());
    dunlin::trace::stop();
    EXPECT_TRUE(is_whole(file.content()));
    records();
    EXPECT_TRUE(busy(starts));
    EXPECT_TRUE(busy(records));
    dunlin::trace::stop();
    EXPECT_TRUE(dunlin::trace::running());
    dunlin::trace::stop_recorder();
    EXPECT_FALSE(dunlin::trace::running());
    std::ostringstream out;
    EXPECT_THROW(dunlin::trace::write_recorder(out), std::logic_error);
}

TEST(Trace, OfAFileThatCannotBeMadeSaysWhy) {
    try {
        dunlin::trace::start("/nonexistent/trace");
        ADD_FAILURE() << "it runs";
    } catch (const std::system_error& e) {
        EXPECT_EQ(e.code().value(), ENOENT);
        EXPECT_NE(std::string(e.what()).find("/nonexistent/trace"), std::string::npos);
    }
    EXPECT_FALSE(dunlin::trace::running());
}

TEST(Trace, HasTasksOfChildrenAndNothingOfPlainThreads) {
    const trace_file file;
    const dunlin::trace::task none("none");
    EXPECT_EQ(none.id(), 0u);
    dunlin::run([&] {
        const dunlin::trace::task not_yet("not yet");
        EXPECT_EQ(not_yet.id(), 0u);
        dunlin::trace::start(file.path());
        {
            const dunlin::trace::task outer("outer task");
            const dunlin::trace::task inner("inner task");
            EXPECT_NE(outer.id(), inner.id());
            dunlin::spawn([] { dunlin::trace::message("", "of a child"); }).get();
            std::thread([] {
                const dunlin::trace::region r("of a plain thread");
                const dunlin::trace::task t("of a plain thread");
                EXPECT_EQ(t.id(), 0u);
                dunlin::trace::message("", "of a plain thread");
            }).join();
            dunlin::trace::stop();
        }
        const dunlin::trace::region after("after the end");
    });
    const std::string content = file.content();
    EXPECT_NE(content.find("of a child"), content.npos);
    EXPECT_EQ(content.find("of a plain thread"), content.npos);
    EXPECT_EQ(content.find("after the end"), content.npos);
}

TEST(Trace, KeepsTheProfileOfWaitsAsItWas) {
    dunlin::runtime::set_block_profile_rate(1ns);
    dunlin::trace::start_recorder();
    dunlin::trace::stop_recorder();
    dunlin::run([] { talk(5); });
    std::ostringstream out;
    dunlin::runtime::block_profile(out, dunlin::runtime::profile_format::text);
    EXPECT_NE(out.str().find("reason"), std::string::npos);
    dunlin::runtime::set_block_profile_rate(0ns);
}

// A region that was too slow a moment ago has its file, though the reporter has not come to it yet.
TEST(Trace, OfASlowRegionIsInItsFileWhenTheRecorderStops) {
    for (int i = 0; i < 20; ++i) {
        const trace_file file;
        dunlin::run({.max_procs = 2}, [&] {
            dunlin::trace::start_recorder({.file = file.path()});
            {
                const dunlin::trace::region r("slow", 1us);
                dunlin::sleep_for(100us);
            }
            dunlin::trace::stop_recorder();
            EXPECT_NE(file.content().find("a region was too slow"), std::string::npos) << i;
        });
    }
}

}  // namespace
