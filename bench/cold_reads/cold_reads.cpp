// cold_reads FILE WAY [PROCS [DEPTH]]: reads 4-KiB pages of FILE, each of them once and none of them in the page cache,
// from DEPTH goroutines, and prints what a read costs. The prototype of docs/decisions/064-cold-reads.md.
//
// Ways       file         dunlin::fs::file: what is not in the page cache blocks a thread, whose processor is handed on
//            ring         preadv2(RWF_NOWAIT), and if it would wait, a ring to which every goroutine submits; one
//                         goroutine waits for the ring's eventfd and wakes those whose reads are done
//            ring-thread  the same with a ring that a thread owns; goroutines hand their reads to that thread
//            threads      pread() on DEPTH threads
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <linux/io_uring.h>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>

namespace {

constexpr unsigned page = 4096;
constexpr long most_reads = 40'000;

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

// The pages in the order in which they are read.
class pages {
public:
    explicit pages(const char* path) : path_(path), fd_(open(path, O_RDONLY | O_CLOEXEC)) {
        if (fd_ < 0) fail(path);
        order_.resize(static_cast<std::size_t>(lseek(fd_, 0, SEEK_END) / page));
        std::iota(order_.begin(), order_.end(), 0);
        std::shuffle(order_.begin(), order_.end(), std::mt19937(1));
        if (order_.size() > most_reads) order_.resize(most_reads);
        posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
        posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);
    }
    const char* path() const { return path_; }
    int fd() const { return fd_; }
    std::size_t size() const { return order_.size(); }
    // f(offset) for each page that no other caller has taken.
    template <class F>
    void each(F f) {
        for (std::size_t i; (i = next_.fetch_add(1)) < order_.size();) {
            if (f(order_[i] * page) != page) fail("read");
        }
    }

private:
    const char* path_;
    int fd_;
    std::vector<long> order_;
    std::atomic<std::size_t> next_{0};
};

// A read that the kernel has: until its completion is reaped the buffer is the kernel's, and neither it nor this may
// go.
struct request {
    dunlin::binary_semaphore done{0};
    long result = 0;
    void* to = nullptr;
    long offset = 0;
    request* next = nullptr;
};

class ring {
public:
    explicit ring(unsigned flags) {
        io_uring_params p{};
        p.flags = flags;
        fd_ = static_cast<int>(syscall(SYS_io_uring_setup, 256, &p));
        if (fd_ < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP)) fail("io_uring_setup");
        const std::size_t bytes = std::max(p.sq_off.array + p.sq_entries * sizeof(unsigned),
            p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe));
        char* both = static_cast<char*>(map(bytes, IORING_OFF_SQ_RING));
        entries_ = static_cast<io_uring_sqe*>(map(p.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
        const auto word = [&](unsigned offset) { return reinterpret_cast<unsigned*>(both + offset); };
        submitted_ = word(p.sq_off.tail);
        array_ = word(p.sq_off.array);
        mask_ = *word(p.sq_off.ring_mask);
        reaped_ = word(p.cq_off.head);
        completed_ = word(p.cq_off.tail);
        completions_mask_ = *word(p.cq_off.ring_mask);
        completions_ = reinterpret_cast<io_uring_cqe*>(both + p.cq_off.cqes);
    }
    int fd() const { return fd_; }
    // One thread at a time.
    void add(int file, void* to, unsigned size, long offset, void* user) {
        const unsigned tail = *submitted_, i = tail & mask_;
        entries_[i] = {};
        entries_[i].opcode = IORING_OP_READ;
        entries_[i].fd = file;
        entries_[i].addr = reinterpret_cast<std::uintptr_t>(to);
        entries_[i].len = size;
        entries_[i].off = static_cast<std::uint64_t>(offset);
        entries_[i].user_data = reinterpret_cast<std::uintptr_t>(user);
        array_[i] = i;
        std::atomic_ref(*submitted_).store(tail + 1, std::memory_order_release);
        ++added_;
    }
    void submit(unsigned wait_for) {
        syscall(SYS_io_uring_enter, fd_, added_, wait_for, wait_for != 0 ? IORING_ENTER_GETEVENTS : 0, nullptr, 0);
        added_ = 0;
    }
    // f(completion), one thread at a time.
    template <class F>
    void reap(F f) {
        unsigned head = *reaped_;
        for (; head != std::atomic_ref(*completed_).load(std::memory_order_acquire); ++head) {
            f(completions_[head & completions_mask_]);
        }
        std::atomic_ref(*reaped_).store(head, std::memory_order_release);
    }

private:
    void* map(std::size_t bytes, off_t what) const {
        void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, what);
        if (at == MAP_FAILED) fail("mmap");
        return at;
    }

    int fd_;
    unsigned *submitted_, *array_, *reaped_, *completed_;
    unsigned mask_, completions_mask_, added_ = 0;
    io_uring_sqe* entries_;
    io_uring_cqe* completions_;
};

void wake_reader(const io_uring_cqe& completion) {
    auto* r = reinterpret_cast<request*>(completion.user_data);
    r->result = completion.res;
    r->done.release();
}

void ring_bell(int bell) {
    const std::uint64_t one = 1;
    if (write(bell, &one, sizeof one) != sizeof one) fail("eventfd");
}

template <class Read>
void from_goroutines(int depth, pages& all, Read read) {
    dunlin::wait_group readers;
    for (int i = 0; i < depth; ++i) {
        readers.go([&] {
            alignas(page) char buffer[page];
            request r;
            r.to = buffer;
            all.each([&](long offset) {
                const iovec part{buffer, page};
                const long n = preadv2(all.fd(), &part, 1, offset, RWF_NOWAIT);
                if (n >= 0) return n;
                r.offset = offset;
                read(r);
                r.done.acquire();
                return r.result;
            });
        });
    }
    readers.wait();
}

void by_file(pages& all, int depth) {
    auto file = dunlin::fs::file::open(all.path());
    posix_fadvise(file.native_handle(), 0, 0, POSIX_FADV_RANDOM);
    dunlin::wait_group readers;
    for (int i = 0; i < depth; ++i) {
        readers.go([&] {
            alignas(page) char buffer[page];
            all.each([&](long offset) {
                return static_cast<long>(file.pread(std::span(buffer), static_cast<std::uint64_t>(offset)));
            });
        });
    }
    readers.wait();
}

void by_ring(pages& all, int depth) {
    ring r(0);
    std::mutex submitting;
    const int bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (syscall(SYS_io_uring_register, r.fd(), IORING_REGISTER_EVENTFD, &bell, 1) != 0) fail("io_uring_register");
    auto bells = dunlin::byte_stream::adopt(bell);
    std::atomic<bool> over{false};
    dunlin::wait_group reaper;
    reaper.go([&] {
        while (!over) {
            std::uint64_t count;
            bells.read_some(&count, sizeof count);
            r.reap(wake_reader);
        }
    });
    from_goroutines(depth, all, [&](request& one) {
        const std::lock_guard guard(submitting);
        r.add(all.fd(), one.to, page, one.offset, &one);
        r.submit(0);
    });
    over = true;
    ring_bell(bell);
    reaper.wait();
}

void by_ring_thread(pages& all, int depth) {
    std::atomic<request*> handed{nullptr};
    std::atomic<bool> over{false};
    const int bell = eventfd(0, EFD_CLOEXEC);
    std::thread owner([&] {
        ring r(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
        std::uint64_t count;
        for (bool listens = false; !over;) {
            if (!std::exchange(listens, true)) r.add(bell, &count, sizeof count, 0, nullptr);
            for (request* one = handed.exchange(nullptr, std::memory_order_acquire); one != nullptr;) {
                request* next = one->next;
                r.add(all.fd(), one->to, page, one->offset, one);
                one = next;
            }
            r.submit(1);
            r.reap([&](const io_uring_cqe& completion) {
                if (completion.user_data == 0) {
                    listens = false;
                } else {
                    wake_reader(completion);
                }
            });
        }
    });
    from_goroutines(depth, all, [&](request& one) {
        request* first = handed.load(std::memory_order_relaxed);
        do {
            one.next = first;
        } while (!handed.compare_exchange_weak(first, &one, std::memory_order_release));
        if (first == nullptr) ring_bell(bell);  // else the bell has been rung for those before
    });
    over = true;
    ring_bell(bell);
    dunlin::blocking([&] { owner.join(); });
}

void by_threads(pages& all, int depth) {
    std::vector<std::thread> readers;
    for (int i = 0; i < depth; ++i) {
        readers.emplace_back([&] {
            alignas(page) char buffer[page];
            all.each([&](long offset) { return pread(all.fd(), buffer, page, offset); });
        });
    }
    for (std::thread& t : readers) t.join();
}

double us_of(const timeval& t) { return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec); }

double cpu_us() {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    return us_of(use.ru_utime) + us_of(use.ru_stime);
}

}  // namespace

int main(int count, char** words) {
    using way = std::function<void(pages&, int)>;
    const std::map<std::string, way> ways{
        {"file", by_file}, {"ring", by_ring}, {"ring-thread", by_ring_thread}, {"threads", by_threads}};
    const auto chosen = count > 2 ? ways.find(words[2]) : ways.end();
    if (chosen == ways.end()) {
        std::fprintf(stderr, "usage: %s FILE file|ring|ring-thread|threads [PROCS [DEPTH]]\n", words[0]);
        return 2;
    }
    const unsigned procs = count > 3 ? static_cast<unsigned>(std::atoi(words[3])) : 1;
    const int depth = count > 4 ? std::atoi(words[4]) : 64;
    pages all(words[1]);
    const auto measure = [&] {
        const double before = cpu_us();
        const auto begin = std::chrono::steady_clock::now();
        chosen->second(all, depth);
        const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - begin;
        const auto reads = static_cast<double>(all.size());
        std::printf("%s, P = %u, depth %d: %.2f us of CPU, %.2f us for each of %zu reads\n", words[2], procs, depth,
            (cpu_us() - before) / reads, passed.count() / reads, all.size());
    };
    if (chosen->first == "threads") {
        measure();
    } else {
        dunlin::run({.max_procs = procs}, measure);
    }
}
