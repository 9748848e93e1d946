// Calls that block and do not say so, without blocking(): others run meanwhile, and on x86-64 none of them ends with
// EINTR.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <netdb.h>
#include <poll.h>
#include <semaphore.h>
#include <shared_mutex>
#include <string>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include "go/syscall_support.h"
#include "support/runtime_test.h"

using namespace std::chrono_literals;
using namespace syscall_support;

namespace {

class GoSyscallP : public support::each_p {};
EACH_P(GoSyscallP);

// One processor, a goroutine that ticks, and, as main, one that calls what blocks its thread. Where `until` can be
// told, the call ends when there have been twenty ticks; so each call ends if, and only if, others run meanwhile.
class Unannounced : public support::runtime_test {
protected:
    struct ticker {
        std::atomic<int> ticks{0};
        std::atomic<bool> over{false};
        void reset() { ticks = 0; }
        bool enough() const { return ticks.load() >= 20; }
    };

    // body(ticker, at_twenty): at_twenty is called once, by the ticking goroutine, when it has ticked twenty times.
    template <class Body, class AtTwenty>
    static void with_ticker(Body body, AtTwenty at_twenty, int loops = 0) {
        dunlin::run({.max_procs = 1}, [&] {
            ticker t;
            dunlin::wait_group done;
            for (int i = 0; i < loops; ++i) {
                done.go([&t] {
                    while (!t.over.load(std::memory_order_relaxed)) {}
                });
            }
            done.go([&] {
                while (!t.over.load()) {
                    dunlin::sleep_for(500us);
                    if (t.ticks.fetch_add(1) + 1 == 20) at_twenty();
                }
            });
            body(t);
            EXPECT_TRUE(t.enough()) << t.ticks.load() << " ticks";
            t.over = true;
            done.wait();
        });
    }
};

TEST_F(Unannounced, AReadOfAPipeLosesItsProcessor) {
    for (const int loops : {0, 2}) {
        const descriptors pipe;
        with_ticker(
            [&](ticker&) {
                char byte = 0;
                const ssize_t n = read(pipe.read_end, &byte, 1);
                EXPECT_EQ(n, 1) << errno_now();
            },
            [&] { EXPECT_EQ(write(pipe.write_end, "x", 1), 1); }, loops);
    }
}

TEST_F(Unannounced, AWriteToAFullPipeLosesItsProcessor) {
    const descriptors pipe;
    const int size = fcntl(pipe.write_end, F_SETPIPE_SZ, 4096);
    std::vector<char> data(static_cast<std::size_t>(size));
    ASSERT_EQ(write(pipe.write_end, data.data(), data.size()), size);
    std::vector<char> drained(data.size());
    with_ticker(
        [&](ticker&) { EXPECT_EQ(write(pipe.write_end, data.data(), data.size()), size) << errno_now(); },
        [&] { EXPECT_EQ(read(pipe.read_end, drained.data(), drained.size()), size); });
}

TEST_F(Unannounced, AUsleepLosesItsProcessor) {
    for (const int loops : {0, 2}) {
        with_ticker(
            [](ticker& t) {
                // One long one, and then short ones until there were enough.
                const auto begin = dunlin::clock::now();
                EXPECT_EQ(usleep(50'000), 0) << errno_now();
                EXPECT_GE(dunlin::clock::now() - begin, 50ms);
                while (!t.enough()) EXPECT_EQ(usleep(3'000), 0) << errno_now();
            },
            [] {}, loops);
    }
}

TEST_F(Unannounced, PollSelectAndEpollLoseTheirProcessors) {
    for (const int which : {0, 1, 2}) {
        const descriptors pipe;
        const int epoll = epoll_create1(EPOLL_CLOEXEC);
        epoll_event interest{EPOLLIN, {}};
        ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, pipe.read_end, &interest), 0);
        with_ticker(
            [&](ticker&) {
                if (which == 0) {
                    pollfd p{pipe.read_end, POLLIN, 0};
                    EXPECT_EQ(poll(&p, 1, -1), 1) << errno_now();
                } else if (which == 1) {
                    fd_set set;
                    FD_ZERO(&set);
                    FD_SET(pipe.read_end, &set);
                    EXPECT_EQ(select(pipe.read_end + 1, &set, nullptr, nullptr, nullptr), 1) << errno_now();
                } else {
                    epoll_event event;
                    EXPECT_EQ(epoll_wait(epoll, &event, 1, -1), 1) << errno_now();
                }
            },
            [&] { EXPECT_EQ(write(pipe.write_end, "x", 1), 1); }, 1);
        close(epoll);
    }
}

TEST_F(Unannounced, AFlockLosesItsProcessor) {
    char name[] = "/tmp/dunlin_flock_XXXXXX";
    const int holder = mkstemp(name);
    ASSERT_GE(holder, 0);
    const int waiter = open(name, O_RDWR | O_CLOEXEC);
    ASSERT_GE(waiter, 0);
    unlink(name);
    for (const int loops : {0, 2}) {
        ASSERT_EQ(flock(holder, LOCK_EX), 0);
        with_ticker([&](ticker&) { EXPECT_EQ(flock(waiter, LOCK_EX), 0) << errno_now(); },
            [&] { EXPECT_EQ(flock(holder, LOCK_UN), 0); }, loops);
        ASSERT_EQ(flock(waiter, LOCK_UN), 0);
    }
    close(holder);
    close(waiter);
}

TEST_F(Unannounced, AcceptAndConnectLoseTheirProcessors) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "dunlin_test_" + std::to_string(getpid());
    std::copy(name.begin(), name.end(), address.sun_path + 1);  // in the abstract name space: no file
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
              client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    int accepted = -1;
    with_ticker(
        [&](ticker&) {
            accepted = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
            EXPECT_GE(accepted, 0) << errno_now();
        },
        [&] { EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&address), size), 0); });
    close(accepted);
    close(client);
    close(listener);
}

TEST_F(Unannounced, ASemaphoreLosesItsProcessor) {
    sem_t semaphore;
    ASSERT_EQ(sem_init(&semaphore, 0, 0), 0);
    for (const int loops : {0, 2}) {
        with_ticker([&](ticker&) { EXPECT_EQ(sem_wait(&semaphore), 0) << errno_now(); },
            [&] { EXPECT_EQ(sem_post(&semaphore), 0); }, loops);
    }
    sem_destroy(&semaphore);
}

TEST_F(Unannounced, AContendedMutexLosesItsProcessor) {
    for (const int loops : {0, 2}) {
        std::mutex mutex;
        std::atomic<bool> held{false}, release{false};
        std::thread holder([&] {
            std::lock_guard guard(mutex);
            held = true;
            while (!release.load()) usleep(100);
        });
        while (!held.load()) usleep(100);
        with_ticker([&](ticker&) { std::lock_guard guard(mutex); }, [&] { release = true; }, loops);
        holder.join();
    }
}

// Held by a goroutine that sits in a system call, and by one that computes.
TEST_F(Unannounced, WaitersForMutexesOfGoroutinesLoseTheirProcessors) {
    dunlin::run({.max_procs = 1}, [] {
        std::mutex mutex;
        long entered = 0, inside = 0, wrong = 0;
        dunlin::wait_group done;
        for (int i = 0; i < 10; ++i) {
            done.go([&, i] {
                for (int round = 0; round < 5; ++round) {
                    std::lock_guard guard(mutex);
                    wrong += ++inside != 1;
                    if (i % 2 == 0) {
                        usleep(1000);
                    } else {
                        for (int k = 0; k < 300'000; ++k) asm volatile("");
                    }
                    --inside;
                    ++entered;
                }
            });
        }
        done.wait();
        EXPECT_EQ(entered, 50);
        EXPECT_EQ(wrong, 0);
    });
}

TEST_F(Unannounced, AConditionVariableLosesItsProcessor) {
    for (const int loops : {0, 2}) {
        std::mutex mutex;
        std::condition_variable changed;
        bool ready = false;
        with_ticker(
            [&](ticker&) {
                std::unique_lock lock(mutex);
                changed.wait(lock, [&] { return ready; });
            },
            [&] {
                {
                    std::lock_guard guard(mutex);
                    ready = true;
                }
                changed.notify_one();
            },
            loops);
    }
}

TEST_F(Unannounced, ALookUpLosesItsProcessor) {
    with_ticker(
        [](ticker& t) {
            while (!t.enough()) {
                addrinfo* found = nullptr;
                const int result = getaddrinfo("localhost", "80", nullptr, &found);
                EXPECT_FALSE(result == EAI_SYSTEM && errno_now() == EINTR);
                if (result == 0) freeaddrinfo(found);
            }
        },
        [] {}, 1);
}

// Computing and short system calls in turn, while main sleeps and wakes: signals are sent at the moments at which calls
// begin.
// ---- which thread it is on afterwards ------------------------------------------------------------------------------

// They sleep in the kernel, compute, and then call the library, mostly without a processor.
template <class Call>
void many_without_a_processor(Call call) {
    dunlin::wait_group done;
    for (int k = 0; k < 12; ++k) {
        done.go([&] {
            for (int i = 0; i < 100; ++i) {
                ::usleep(300);
                const auto end = std::chrono::steady_clock::now() + 100us;
                while (std::chrono::steady_clock::now() < end) {}
                call();
            }
        });
    }
    done.wait();
}

TEST_P(GoSyscallP, ACallThatNeverWaitsLeavesTheGoroutineOnItsThread) {
    run([] {
        const dunlin::chan<int> c(1 << 16);
        dunlin::condition_variable cv;
        std::atomic<int> moved{0};
        const auto before = dunlin::runtime::stats().hand_offs.returns_queued;
        many_without_a_processor([&] {
            // Not std::this_thread::get_id(): the compiler may keep pthread_self() across the calls.
            const pid_t here = ::gettid();
            c.try_send(1);
            if (::gettid() != here) ++moved;
            dunlin::go([] {});
            if (::gettid() != here) ++moved;
            cv.notify_one();
            if (::gettid() != here) ++moved;
        });
        EXPECT_EQ(moved.load(), 0);
        EXPECT_GT(dunlin::runtime::stats().hand_offs.returns_queued, before) << "none has waited for a processor";
    });
}

// Locks of libc that belong to the thread.
TEST_P(GoSyscallP, LocksOfTheThreadMayBeHeldAcrossCallsThatNeverWait) {
    run([] {
        const dunlin::chan<int> c(1 << 16);
        std::recursive_mutex recursive;
        std::shared_mutex shared;
        FILE* const file = std::tmpfile();
        ASSERT_NE(file, nullptr);
        int sum = 0, wide = 0, errors = 0;
        many_without_a_processor([&] {
            {
                const std::lock_guard outer(recursive);
                c.try_send(1);
                const std::lock_guard inner(recursive);
                ++sum;
            }
            try {
                const std::unique_lock writer(shared);
                dunlin::go([] {});
                ++wide;
            } catch (const std::system_error&) {
                ++errors;
            }
            flockfile(file);
            std::fputc('a', file);
            c.try_send(1);
            std::fputc('b', file);
            funlockfile(file);
        });
        EXPECT_EQ(sum, 1200);
        EXPECT_EQ(wide, 1200);
        EXPECT_EQ(errors, 0);
        std::fclose(file);
    });
}

TEST_P(GoSyscallP, NoCallEverEndsWithEintr) {
    run([this] {
        const descriptors pipe;
        std::atomic<bool> over{false};
        std::atomic<long> failed{0}, rounds{0};
        std::array<std::atomic<int>, 5> errors{};
        dunlin::wait_group done;
        for (unsigned i = 0; i < std::max(5u, procs() + 2); ++i) {
            done.go([&, i] {
                unsigned random = i + 1;
                while (!over.load()) {
                    random = random * 1'664'525 + 1'013'904'223;
                    for (unsigned k = random >> 13; k != 0; --k) asm volatile("");
                    const timespec t{0, 50'000 + static_cast<long>(random % 100'000)};
                    pollfd p{pipe.read_end, POLLIN, 0};
                    timeval v{0, 100};
                    sem_t semaphore;
                    sem_init(&semaphore, 0, 0);
                    timespec soon;
                    clock_gettime(CLOCK_REALTIME, &soon);
                    soon.tv_nsec = std::min(soon.tv_nsec + 100'000, 999'999'999L);
                    int error = 0;
                    switch (i % 5) {
                        case 0: error = usleep(100) == 0 ? 0 : errno_now(); break;
                        case 1: error = nanosleep(&t, nullptr) == 0 ? 0 : errno_now(); break;
                        case 2: error = poll(&p, 1, 1) == 0 ? 0 : errno_now(); break;
                        case 3: error = select(0, nullptr, nullptr, nullptr, &v) == 0 ? 0 : errno_now(); break;
                        case 4:
                            error =
                                sem_timedwait(&semaphore, &soon) == -1 && errno_now() == ETIMEDOUT ? 0 : errno_now();
                            break;
                    }
                    // ThreadSanitizer does not know select(): it notes the signal and lets the call end, and the
                    // runtime's handler comes too late.
                    if (error != 0 && !(support::under_thread && i % 5 == 3 && error == EINTR)) {
                        failed.fetch_add(1);
                        errors[i % 5] = error;
                    }
                    sem_destroy(&semaphore);
                    rounds.fetch_add(1);
                }
            });
        }
        const std::uint64_t before = hand_offs().preemptions;
        const auto until = dunlin::clock::now() + 500ms;
        while (dunlin::clock::now() < until || rounds.load() < 20) dunlin::sleep_for(100us);
        over = true;
        done.wait();
#if defined(__x86_64__)
        // Elsewhere a call cannot be made again (stack/interrupted_call.h).
        EXPECT_EQ(failed.load(), 0) << "of " << rounds.load() << "; usleep " << errors[0] << ", nanosleep " << errors[1]
                                    << ", poll " << errors[2] << ", select " << errors[3] << ", sem_timedwait "
                                    << errors[4];
#endif
        RecordProperty("preemptions", static_cast<int>(hand_offs().preemptions - before));
    });
}

}  // namespace
