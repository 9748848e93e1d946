// A context ends waits: what can be had at once is had although the context is done already, and what would have to
// wait is not.
#include <array>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;
using dunlin::context;
using dunlin::context_cancelled;

class DoneContext : public support::each_p {
protected:
    DoneContext() { done_.cancel(); }
    const dunlin::cancellable done_ = dunlin::with_cancel({});
    const context& over_ = done_;
};
EACH_P(DoneContext);

TEST_P(DoneContext, LeavesAloneWhatCanBeHadAtOnce) {
    run([this] {
        dunlin::chan<int> c(1);
        c.send(1, over_);
        EXPECT_EQ(c.recv(over_), 1);
        c.close();
        EXPECT_EQ(c.recv(over_), std::nullopt);
        EXPECT_THROW(c.send(1, over_), dunlin::channel_closed);

        dunlin::mutex m;
        m.lock(over_);
        m.unlock();
        dunlin::recursive_mutex r;
        r.lock(over_);
        r.lock(over_);
        r.unlock();
        r.unlock();
        dunlin::shared_mutex s;
        s.lock(over_);
        s.unlock();
        s.lock_shared(over_);
        s.lock_shared(over_);
        s.unlock_shared();
        s.unlock_shared();
        dunlin::binary_semaphore permits(1);
        permits.acquire(over_);

        dunlin::wait_group().wait(over_);
        dunlin::task_group().wait(over_);
        dunlin::latch(0).wait(over_);
        dunlin::latch(1).arrive_and_wait(over_);
        dunlin::latch(2).arrive_and_wait(2, over_);
        dunlin::barrier<>(1).arrive_and_wait(over_);
        dunlin::promise<int> p;
        auto f = p.get_future();
        p.set_value(2);
        EXPECT_EQ(f.get(over_), 2);
        auto t = dunlin::spawn([] { return 3; });
        t.wait();
        EXPECT_EQ(t.get(over_), 3);
        dunlin::condition_variable cv;
        std::unique_lock lock(m);
        cv.wait(lock, over_, [] { return true; });
        dunlin::sleep_for(0s, over_);
        dunlin::sleep_until(dunlin::clock::now() - 1s, over_);
        dunlin::sleep_until(std::chrono::system_clock::now() - 1s, over_);
    });
}

TEST_P(DoneContext, EndsWhatWouldHaveToWait) {
    run([this] {
        dunlin::chan<int> empty, full(1);
        full.send(1);
        EXPECT_THROW(empty.recv(over_), context_cancelled);
        EXPECT_THROW(full.send(2, over_), context_cancelled);
        EXPECT_THROW(dunlin::chan<int>::nil().recv(over_), context_cancelled);
        dunlin::mutex m;
        const std::scoped_lock hold(m);
        EXPECT_THROW(m.lock(over_), context_cancelled);
        dunlin::shared_mutex s;
        s.lock();
        EXPECT_THROW(s.lock(over_), context_cancelled);
        EXPECT_THROW(s.lock_shared(over_), context_cancelled);
        s.unlock();
        EXPECT_TRUE(s.try_lock());
        s.unlock();
        EXPECT_THROW(dunlin::binary_semaphore(0).acquire(over_), context_cancelled);
        dunlin::latch l(1);
        EXPECT_THROW(l.wait(over_), context_cancelled);
        dunlin::barrier<> b(2);
        EXPECT_THROW(b.arrive_and_wait(over_), context_cancelled);
        dunlin::promise<int> p;
        auto f = p.get_future();
        EXPECT_THROW(f.get(over_), context_cancelled);
        EXPECT_THROW(dunlin::sleep_for(1h, over_), context_cancelled);
        auto t = dunlin::spawn([&] { l.wait(); });
        EXPECT_THROW(t.get(over_), context_cancelled);
        l.count_down();
    });
}

TEST_P(DoneContext, HoldsForStreamsPacketsAndFilesToo) {
    run([this] {
        std::array<char, 8> in;
        auto [read_end, write_end] = dunlin::fs::pipe();
        EXPECT_EQ(write_end.write_some("abc", over_), 3u);
        EXPECT_EQ(write_end.write_all("def", over_), 3u);
        EXPECT_EQ(read_end.read_some(in.data(), 2, over_), 2u);
        EXPECT_EQ(read_end.read_exactly(in.data(), 4, over_), 4u);
        EXPECT_EQ(std::string(in.data(), 4), "cdef");
        EXPECT_THROW(read_end.read_some(in.data(), 1, over_), context_cancelled);
        write_end.write_all("x");
        std::error_code ec;
        EXPECT_EQ(read_end.read_exactly(in.data(), 2, over_, ec), 1u) << "what was there";
        EXPECT_EQ(ec, dunlin::errc::cancelled);
        write_end.close();
        EXPECT_EQ(read_end.read_some(in.data(), 1, over_), 0u);

        auto listener = dunlin::net::listen("tcp", "127.0.0.1:0");
        EXPECT_THROW(listener.accept(over_), context_cancelled);
        auto client = dunlin::net::dial("tcp", listener.local_address());
        listener.accept(over_).close();
        EXPECT_THROW(dunlin::net::dial("tcp", listener.local_address(), over_), context_cancelled)
            << "TCP always waits";

        char name[] = "/tmp/dunlin-done-context-XXXXXX";
        const int fd = mkstemp(name);
        ASSERT_GE(fd, 0);
        unlink(name);
        auto file = dunlin::byte_stream::adopt(fd);
        EXPECT_EQ(file.write_all("in memory", over_), 9u);
        ASSERT_EQ(lseek(fd, 0, SEEK_SET), 0);
        const std::size_t n = file.read_some(in.data(), in.size(), over_, ec);
        // A file system that cannot say whether it would have to wait is not asked.
        EXPECT_TRUE((n == in.size() && !ec) || ec == dunlin::errc::cancelled) << n << ", " << ec.message();
    });
}

// As in Go: being done is one case among those that can go.
TEST_P(DoneContext, SelectDrawsAmongWhatCanGo) {
    run([this] {
        constexpr int rounds = 2000;
        int values = 0, ends = 0;
        dunlin::chan<int> c(1);
        for (int i = 0; i < rounds; ++i) {
            if (c.len() == 0) c.send(i);
            dunlin::select(dunlin::on_recv(c, [&] { ++values; }), dunlin::on_done(over_, [&] { ++ends; }));
        }
        // Six standard deviations.
        EXPECT_NEAR(values, rounds / 2, 135);
        EXPECT_EQ(values + ends, rounds);
        EXPECT_EQ(dunlin::select(dunlin::on_done(over_), dunlin::on_recv(dunlin::chan<int>())), 0u);
    });
}

}  // namespace
