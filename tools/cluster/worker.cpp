// worker.cpp - a process that takes jobs, and may be killed at any moment.
#include <csignal>
#include <cstdio>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

#include "job.h"
#include "ledger.h"

namespace fleet {

namespace {

namespace nats = dunlin::nats;

void die() { ::kill(getpid(), SIGKILL); }

void die_as_chosen(ledger::place& p) {
    p.chosen_deaths.fetch_add(1);
    die();
}

class worker {
public:
    worker(const ledger& l, unsigned place, crash c) : ledger_(l), place_(l.at(place)), crash_(c) {}

    void run(const nats::queue<job>& jobs, const dunlin::context& ctx) {
        while (!ctx.is_done()) {
            auto consumer = jobs.consume({.in_flight = 64, .ctx = ctx});
            dunlin::wait_group all;
            for (int i = 0; i < 48; ++i) {
                all.go([&] {
                    try {
                        while (auto d = consumer.recv()) take(*d);
                    } catch (const nats::error& e) {
                        std::fprintf(stderr, "worker: %s\n", e.what());
                        consumer.stop();
                    }
                });
            }
            all.wait();
        }
    }

private:
    void take(nats::delivery<job>& d) {
        const bool mine = taken_.fetch_add(1) + 1 == crash_.job;
        const auto at = [&](crash::moment m) { return mine && crash_.when == m; };
        if (at(crash::before)) die_as_chosen(place_);
        ledger_.apply(d->number);
        if (at(crash::between)) die_as_chosen(place_);
        if (at(crash::during)) {
            dunlin::go([this] {
                dunlin::sleep_for(std::chrono::microseconds(getpid() % 1'000));
                die_as_chosen(place_);
            });
        }
        try {
            d.done();
        } catch (const nats::error&) {
            place_.unconfirmed.fetch_add(1);  // it comes again
            return;
        }
        place_.done.fetch_add(1);
        if (at(crash::after)) die_as_chosen(place_);
    }

    const ledger& ledger_;
    ledger::place& place_;
    const crash crash_;
    std::atomic<std::uint32_t> taken_{0};
};

}  // namespace

int work(const std::string& urls, const std::string& file, std::uint32_t jobs, unsigned place, crash c) {
    const ledger accounts(file, jobs);
    const pid_t parent = getppid();
    return dunlin::run([&] {
        const dunlin::signal_context ctx({SIGTERM});
        accounts.at(place).listens.store(getpid());
        auto link =
            nats::connect(urls, {.name = "worker-" + std::to_string(place + 1), .patience = 60s, .confirm = 30s});
        dunlin::go([&, link] {
            nats::statistics before{};
            ledger::place& p = accounts.at(place);
            while (getppid() == parent) {
                dunlin::sleep_for(50ms);
                const nats::statistics now = link.stats();
                p.redelivered.fetch_add(static_cast<std::uint32_t>(now.redelivered - before.redelivered));
                p.reconnects.fetch_add(static_cast<std::uint32_t>(now.reconnects - before.reconnects));
                p.lost.fetch_add(static_cast<std::uint32_t>(now.lost - before.lost));
                before = now;
            }
            die();  // the coordinator is gone
        });
        while (!ctx.is_done()) {
            try {
                auto queue = link.queue<job>("jobs", queue_settings, ctx);
                worker(accounts, place, c).run(queue, ctx);
            } catch (const nats::error& e) {
                std::fprintf(stderr, "worker-%u: %s\n", place + 1, e.what());
                dunlin::sleep_for(200ms);
            } catch (const dunlin::context_cancelled&) {
            }
        }
        link.close();
        return 0;
    });
}

}  // namespace fleet
