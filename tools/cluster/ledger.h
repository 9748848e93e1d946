// ledger.h - the sink of ./dev cluster: accounts that all workers write, in memory that they share, and that outlive
// each of them.
//
// An effect adds a job's amount to the total, once: the mark of the job and the total change together, as in a
// transaction of a database. What is about to change is written down first (`pending`); a worker that is killed in
// between leaves the lock to the next one, which finds that out and completes it.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dunlin/blocking.hpp>

namespace fleet {

constexpr unsigned workers = 4;

class ledger {
public:
    // What a worker says of itself; of all that have had its place.
    struct place {
        std::atomic<std::uint32_t> done, redelivered, reconnects, lost, unconfirmed, chosen_deaths;
        std::atomic<pid_t> listens;  // the worker that ends in order when it is told to by SIGTERM
    };

    ledger(const std::filesystem::path& file, std::uint32_t jobs)
        : jobs_(jobs), size_(sizeof(shared) + jobs * sizeof(job)) {
        const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, static_cast<off_t>(size_)) != 0)
            throw std::runtime_error("the ledger: " + file.string());
        void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (at == MAP_FAILED) throw std::runtime_error("mmap");
        all_ = static_cast<shared*>(at);
    }
    ~ledger() { munmap(all_, size_); }
    ledger(const ledger&) = delete;
    ledger& operator=(const ledger&) = delete;

    // By the first process, before the others.
    void begin() const {
        pthread_mutexattr_t a;
        pthread_mutexattr_init(&a);
        pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&all_->lock, &a);
        pthread_mutexattr_destroy(&a);
    }

    static std::int64_t amount(std::uint32_t n) noexcept { return n * std::int64_t{2'654'435'761} % 1'000 + 1; }

    // The effect of job `n`. False if it had been made before.
    bool apply(std::uint32_t n) const {
        job& j = of(n);
        j.executions.fetch_add(1);
        // A robust lock is its thread's.
        return dunlin::on_thread_stack([&] {
            if (pthread_mutex_lock(&all_->lock) == EOWNERDEAD) {
                complete();
                pthread_mutex_consistent(&all_->lock);
            }
            const bool first = j.applied.load() == 0;
            if (first) {
                all_->pending_job.store(n);
                all_->pending_total.store(all_->total.load() + amount(n));
                all_->pending_count.store(all_->count.load() + 1);
                all_->pending.store(1);
                complete();
            }
            pthread_mutex_unlock(&all_->lock);
            return first;
        });
    }

    place& at(unsigned worker) const { return all_->places.at(worker); }
    std::uint32_t count() const noexcept { return all_->count.load(); }
    std::int64_t total() const noexcept { return all_->total.load(); }
    std::uint32_t jobs() const noexcept { return jobs_; }
    std::uint32_t executions(std::uint32_t n) const { return of(n).executions.load(); }
    bool applied(std::uint32_t n) const { return of(n).applied.load() != 0; }

private:
    struct job {
        std::atomic<std::uint32_t> executions, applied;
    };
    struct shared {
        pthread_mutex_t lock;
        std::atomic<std::int64_t> total, pending_total;
        std::atomic<std::uint32_t> count, pending_count, pending_job, pending;
        std::array<place, workers> places;
    };

    job& of(std::uint32_t n) const {
        if (n >= jobs_) throw std::out_of_range("job " + std::to_string(n));
        return reinterpret_cast<job*>(all_ + 1)[n];
    }
    // As often as one likes.
    void complete() const {
        if (all_->pending.load() == 0) return;
        of(all_->pending_job.load()).applied.store(1);
        all_->total.store(all_->pending_total.load());
        all_->count.store(all_->pending_count.load());
        all_->pending.store(0);
    }

    std::uint32_t jobs_;
    std::size_t size_;
    shared* all_ = nullptr;
};

}  // namespace fleet
