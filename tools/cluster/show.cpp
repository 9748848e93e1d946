// show.cpp - the coordinator: sends the jobs, has things happen to servers and workers, and looks whether all was done.
//
// What happens is a list. A part of the jobs is sent when its entry begins, so that there is work to do whatever is
// slow or fast; an entry that takes a server away begins when all replicas have caught up, because a majority is what
// NATS promises by.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <mutex>
#include <random>
#include <unistd.h>

#include <dunlin/dunlin.hpp>

#include "job.h"
#include "ledger.h"
#include "picture.h"
#include "servers.h"

namespace fleet {

namespace {

namespace nats = dunlin::nats;

constexpr const char* system_user = "administrator";  // of the servers' own account: may take one out of the cluster

// The workers' processes: the place of each is taken by another one when it has died.
class crew {
public:
    crew(nats_servers& s, std::string file, std::uint32_t jobs) : servers_(s), file_(std::move(file)), jobs_(jobs) {}
    ~crew() { end(); }
    crew(const crew&) = delete;
    crew& operator=(const crew&) = delete;

    void begin(const picture& p) {
        for (unsigned w = 0; w < workers; ++w) replace(w, p);
    }
    // Those that have died; called now and then.
    void look_after(const picture& p) {
        for (unsigned w = 0; w < workers; ++w) {
            if (ended(w, WNOHANG)) replace(w, p);
        }
    }
    void signal(unsigned w, int s) const {
        if (pids_[w] > 0) ::kill(pids_[w], s);
    }
    pid_t pid(unsigned w) const { return pids_[w]; }

    // In order: each ends its jobs. One that has only just begun is told when it listens: before, the signal kills it.
    bool dismiss(const ledger& l) {
        const auto within_5_s = [](auto happened) {
            for (int i = 0; i < 500 && !happened(); ++i) dunlin::sleep_for(10ms);
            return happened();
        };
        for (unsigned w = 0; w < workers; ++w) {
            signal(w, SIGCONT);
            within_5_s([&] { return ended(w, WNOHANG) || l.at(w).listens.load() == pids_[w]; });
            signal(w, SIGTERM);
        }
        bool all = true;
        for (unsigned w = 0; w < workers; ++w) all = within_5_s([&] { return ended(w, WNOHANG); }) && all;
        end();
        return all && faults_ == 0;
    }

private:
    void replace(unsigned w, const picture& p) {
        // Every second one dies by itself, at the next of the chosen moments.
        crash c;
        if (born_++ % 2 == 1) c = {static_cast<crash::moment>(born_ / 2 % 4 + 1), 20 + born_ * 37 % 300};
        pids_[w] = start_process({"/proc/self/exe", "--worker", servers_.urls(), file_, std::to_string(jobs_),
            std::to_string(w), std::to_string(c.when), std::to_string(c.job)});
        servers_.kept_by().add(pids_[w]);
        if (born_ > workers) p.count_death();
    }
    bool ended(unsigned w, int how) {
        if (pids_[w] < 0) return true;
        siginfo_t info{};
        if (waitid(P_PID, static_cast<id_t>(pids_[w]), &info, WEXITED | WNOWAIT | how) != 0 || info.si_pid == 0)
            return false;
        servers_.kept_by().remove(pids_[w]);
        waitpid(pids_[w], &last_status_, 0);
        // They are killed, or end in order: anything else is a fault of theirs.
        if (WIFSIGNALED(last_status_) ? WTERMSIG(last_status_) != SIGKILL : WEXITSTATUS(last_status_) != 0) ++faults_;
        pids_[w] = -1;
        return true;
    }
    void end() {
        for (unsigned w = 0; w < workers; ++w) {
            if (pids_[w] < 0) continue;
            signal(w, SIGKILL);
            ended(w, 0);
        }
    }

    nats_servers& servers_;
    const std::string file_;
    const std::uint32_t jobs_;
    std::array<pid_t, workers> pids_{-1, -1, -1, -1};
    unsigned born_ = 0;
    int last_status_ = 0, faults_ = 0;
};

std::string leader_of(const std::string& info) {
    const std::string key = "\"leader\":\"";
    const std::size_t at = info.find(key);
    return at == info.npos ? "" : info.substr(at + key.size(), info.find('"', at + key.size()) - at - key.size());
}

class coordinator {
public:
    coordinator(const show_options& o, nats_servers& s, const ledger& l)
        : options_(o),
          servers_(s),
          ledger_(l),
          picture_(l, o.jobs),
          random_(o.seed),
          crew_(s, (s.folder() / "ledger").string(), o.jobs) {}

    int run() {
        const dunlin::signal_context ctx({SIGINT, SIGTERM});
        try {
            return work(ctx);
        } catch (const dunlin::context_cancelled&) {
            picture_.close();
            std::puts("ended by a signal");
            return 130;
        }
    }

private:
    int work(const dunlin::context& ctx) {
        picture_.note("three servers are starting");
        link_.emplace(nats::connect(servers_.urls(), {.name = "coordinator", .patience = 60s, .confirm = 60s}));
        const auto [first, cancel] = dunlin::with_timeout(ctx, 40s);
        queue_.emplace(link_->queue<job>("jobs", queue_settings, first));
        picture_.note("the queue is there, with three replicas");
        crew_.begin(picture_);

        const auto over = dunlin::with_cancel(ctx);
        dunlin::wait_group beside;
        beside.go([&] { look(over); });
        auto sender = dunlin::spawn([&] { send(over); });
        auto faults = dunlin::spawn([&] { happen(over); });
        const auto stop = [&] {
            over.cancel();
            beside.wait();
        };
        try {
            faults.get();
            sender.get();
            auto given_up = dunlin::clock::now() + 60s;
            std::uint32_t before = 0;
            for (int idle = 0; !all_done(ctx); dunlin::sleep_for(50ms, ctx)) {
                if (std::exchange(before, ledger_.count()) != ledger_.count()) given_up = dunlin::clock::now() + 60s;
                if (dunlin::clock::now() > given_up) {
                    const std::string dead = ask("STREAM.INFO.jobs-dead", ctx);
                    const std::size_t at = dead.find("\"messages\":");
                    const std::string count =
                        at == dead.npos ? "none" : dead.substr(at + 11, dead.find(',', at) - at - 11);
                    picture_.note("nothing was done for a minute; dead letters: " + count);
                    break;
                }
                // Stranded: the stream has jobs that its consumer does not know of any more (nats-server 2.9, after a
                // change of leaders). A consumer that is made anew begins with all that is in the stream.
                idle = idle_ ? idle + 1 : 0;
                if (idle < 60) continue;
                idle = 0;
                if (left_ == 0 && ++empty_ > 2) {
                    send_again(ctx);
                } else {
                    ask("CONSUMER.DELETE.jobs.workers", ctx);
                    picture_.note("the consumer is made anew, for " + std::to_string(left_) +
                                  " jobs that the servers have stranded");
                }
            }
        } catch (...) {
            stop();
            throw;
        }
        stop();
        const bool in_order = crew_.dismiss(ledger_);
        picture_.close();
        const int result = check(in_order);
        link_->close();
        return result;
    }

    // ---- sending

    void send(const dunlin::context& ctx) {
        const std::size_t parts = entries().size() + 1;
        std::vector<std::uint32_t> again;
        for (std::uint32_t i = 0; i < options_.jobs; ++i) {
            while (i >= options_.jobs * (begun_.load() + 1) / parts) dunlin::sleep_for(5ms, ctx);
            queue_->send_async({i}, nats::once_by(std::to_string(i)), ctx);
            picture_.sent.store(i + 1);
        }
        // What was not confirmed may be there or not: the same ids again.
        for (auto left = queue_->flush(ctx); !left.empty(); left = queue_->flush(ctx)) {
            picture_.note(
                std::to_string(left.size()) + " jobs were not confirmed, and are sent again: " + left[0].words);
            for (const auto& u : left) queue_->send_async(nats::codec<job>::decode(u.data), nats::once_by(u.id), ctx);
        }
        picture_.note("all jobs are sent and confirmed");
    }

    // The sender of a job that counts keeps it until its result is there: servers may lose what they have confirmed.
    void send_again(const dunlin::context& ctx) {
        std::uint32_t count = 0;
        for (std::uint32_t i = 0; i < options_.jobs; ++i) {
            if (ledger_.applied(i)) continue;
            queue_->send({i}, ctx);
            ++count;
        }
        picture_.note(std::to_string(count) + " jobs that the servers have lost are sent again");
        sent_again_ += count;
    }

    // ---- what happens

    struct entry {
        std::string what;
        std::function<void(const dunlin::context&)> act;
    };

    std::vector<entry> entries() {
        const auto pause = [](auto d, const dunlin::context& ctx) { dunlin::sleep_for(d, ctx); };
        const auto worker = [this] { return static_cast<unsigned>(random_() % workers); };
        std::vector<entry> all = {
            {"a worker is killed", [=, this](const dunlin::context&) { crew_.signal(worker(), SIGKILL); }},
            {"the stream's leader is killed, and comes back", [=, this](const dunlin::context& ctx) {
                 nats_server& s = leading(ctx);
                 s.kill();
                 picture_.server(s.name(), "killed");
                 pause(1500ms, ctx);
                 s.start();
                 picture_.server(s.name(), "");
             }},
        };
        if (options_.purge) {
            all.push_back({"an administrator purges the stream", [=, this](const dunlin::context& ctx) {
                               pause(200ms, ctx);
                               ask("STREAM.PURGE.jobs", ctx);
                           }});
        }
        if (options_.brief) return all;
        const auto frozen = [=, this](nats_server& s, const dunlin::context& ctx) {
            s.signal(SIGSTOP);
            picture_.server(s.name(), "frozen");
            pause(5s, ctx);
            s.signal(SIGCONT);
            picture_.server(s.name(), "");
        };
        all.push_back({"a worker is frozen beyond the deadline", [=, this](const dunlin::context& ctx) {
                           const unsigned w = worker();
                           spared_.store(static_cast<int>(w));
                           crew_.signal(w, SIGSTOP);
                           picture_.worker(w, "frozen");
                           pause(3s, ctx);
                           crew_.signal(w, SIGCONT);
                           picture_.worker(w, "");
                           spared_.store(-1);
                       }});
        all.push_back(
            {"the stream's leader is frozen", [=, this](const dunlin::context& ctx) { frozen(leading(ctx), ctx); }});
        all.push_back({"a server's disk is wiped", [=, this](const dunlin::context& ctx) {
                           nats_server& s = following(ctx);
                           s.kill();
                           s.wipe();
                           picture_.server(s.name(), "wiped");
                           pause(1s, ctx);
                           replace(s, ctx);
                       }});
        all.push_back({"another server is killed, and comes back", [=, this](const dunlin::context& ctx) {
                           nats_server& s = following(ctx);
                           s.kill();
                           picture_.server(s.name(), "killed");
                           pause(1s, ctx);
                           s.start();
                           picture_.server(s.name(), "");
                       }});
        return all;
    }

    void happen(const dunlin::context& ctx) {
        const auto all = entries();
        for (std::size_t i = 0; i < all.size(); ++i) {
            const auto part = static_cast<std::uint32_t>(options_.jobs * (i + 1) / (all.size() + 1));
            while (ledger_.count() < part / 2) dunlin::sleep_for(20ms, ctx);
            settle(ctx);
            picture_.note(all[i].what);
            begun_.fetch_add(1);
            all[i].act(ctx);
        }
        settle(ctx);
        if (behind_.empty() && settled_) picture_.note("all replicas have caught up");
    }

    // A server that has lost its disk is another server: it has promised things (votes, jobs that it stored) of which
    // it knows nothing more. So the others are told that the old one is gone, and it joins under a new name. Under the
    // old one it might vote for a leader that lacks confirmed jobs.
    void replace(nats_server& s, const dunlin::context& ctx) {
        auto administrator =
            nats::connect(servers_.urls(), {.name = "administrator", .user = system_user, .password = system_user});
        const std::string removal = "{\"peer\":\"" + s.name() + "\"}";
        for (bool gone = false; !gone; dunlin::sleep_for(50ms, ctx)) {
            try {
                const auto [soon, cancel] = dunlin::with_timeout(ctx, 1s);
                gone = administrator.jetstream("SERVER.REMOVE", removal, soon).find("\"success\":true") !=
                       std::string::npos;
            } catch (const nats::error& e) {  // an election: there is no leader that could do it
                picture_.note(e.what());
            } catch (const dunlin::context_cancelled&) {
                if (ctx.is_done()) throw;
            }
        }
        administrator.close();
        const std::string before = s.name();
        s.rename("s" + std::to_string(++newest_server_));
        picture_.server_replaced(before, s.name());
        picture_.note(before + " is taken out of the cluster, and joins as " + s.name());
        s.start();
    }
    std::string ask(const std::string& what, const dunlin::context& ctx) {
        try {
            const auto [soon, cancel] = dunlin::with_timeout(ctx, 1s);
            return link_->jetstream(what, "", soon);
        } catch (const nats::error&) {
        } catch (const dunlin::context_cancelled&) {
            if (ctx.is_done()) throw;
        }
        return {};
    }
    // Until stream and consumer have a leader, and two others that have caught up. A server whose disk was wiped may
    // never catch up (nats-server 2.9:
    // "last sequence mismatch", again and again): after a while it goes on without that one, which is the next to be
    // killed, as two are a majority.
    void settle(const dunlin::context& ctx) {
        const auto until = dunlin::clock::now() + 20s;
        behind_.clear();
        settled_ = true;
        const auto good = [](const std::string& info) {
            int current = 0;
            for (std::size_t at = 0; (at = info.find("\"current\":true", at)) != info.npos; ++at) ++current;
            return !leader_of(info).empty() && current >= 2 && info.find("\"offline\":true") == info.npos;
        };
        // The one that is late, where there is a majority without it.
        const auto late = [](const std::string& info) -> std::string {
            const std::size_t at = info.find("\",\"current\":false");
            if (leader_of(info).empty() || at == info.npos || info.find("\"current\":true") == info.npos) return {};
            const std::size_t from = info.rfind('"', at - 1) + 1;
            return info.substr(from, at - from);
        };
        for (;;) {
            const std::string stream = ask("STREAM.INFO.jobs", ctx), consumer = ask("CONSUMER.INFO.jobs.workers", ctx);
            if (good(stream) && good(consumer)) return;
            if (dunlin::clock::now() > until) {
                behind_ = late(stream).empty() ? late(consumer) : late(stream);
                if (!behind_.empty())
                    return picture_.note(behind_ + " does not catch up; it goes on with the two others");
                if (dunlin::clock::now() > until + 5s) {
                    settled_ = false;
                    return picture_.note("the servers do not say that three of them have all; it goes on");
                }
            }
            dunlin::sleep_for(100ms, ctx);
        }
    }
    nats_server& leading(const dunlin::context& ctx) {
        for (;;) {
            if (const std::string name = leader_of(ask("STREAM.INFO.jobs", ctx)); !name.empty())
                return servers_.named(name);
            dunlin::sleep_for(50ms, ctx);
        }
    }
    nats_server& following(const dunlin::context& ctx) {
        const nats_server& first = leading(ctx);
        if (!behind_.empty() && first.name() != behind_) return servers_.named(behind_);
        const std::size_t from = random_() % 2;
        for (std::size_t i = from;; ++i) {
            if (nats_server& s = servers_[i % 3]; &s != &first) return s;
        }
    }

    // ---- looking

    // Until it is over: those that have died are replaced, each second one is killed, and the picture is drawn.
    void look(const dunlin::context& ctx) {
        std::minstd_rand random(options_.seed + 1);
        std::uint32_t killed_at = 0;
        dunlin::clock::time_point next_kill = dunlin::clock::now() + 1s, moved = dunlin::clock::now();
        std::uint32_t count = 0;
        while (!ctx.is_done()) {
            crew_.look_after(picture_);
            const auto now = dunlin::clock::now();
            if (now >= next_kill && ledger_.count() > killed_at && ledger_.count() < options_.jobs) {
                const unsigned w = static_cast<unsigned>(random() % workers);
                if (static_cast<int>(w) != spared_.load()) crew_.signal(w, SIGKILL);
                next_kill = now + 1s;
                killed_at = ledger_.count();
            }
            if (std::exchange(count, ledger_.count()) != ledger_.count() || count >= picture_.sent.load()) moved = now;
            try {
                if (now - moved > 10s) {  // longer than elections last: the servers have lost the consumer
                    ask("CONSUMER.DELETE.jobs.workers", ctx);
                    picture_.note("nothing was done for ten seconds: the consumer is made anew");
                    moved = now;
                }
                const auto [soon, cancel] = dunlin::with_timeout(ctx, 300ms);
                picture_.leader = leader_of(link_->jetstream("STREAM.INFO.jobs", "", soon));
                picture_.size = queue_->size(soon);
            } catch (const nats::error&) {
            } catch (const dunlin::context_cancelled&) {
            }
            picture_.draw([&](unsigned w) { return crew_.pid(w); });
            try {
                dunlin::sleep_for(150ms, ctx);
            } catch (const dunlin::context_cancelled&) {
            }
        }
    }

    // Every effect is there, and the consumer has nothing more to deliver. It is asked, and not the stream: after a
    // change of leaders servers may keep jobs that were acknowledged, which no consumer is given again (nats-server
    // 2.9).
    bool all_done(const dunlin::context& ctx) {
        idle_ = false;
        try {
            const auto [soon, cancel] = dunlin::with_timeout(ctx, 2s);
            const auto now = queue_->size(soon);
            left_ = now.messages;
            idle_ = now.waiting == 0 && now.in_flight == 0;
            return idle_ && ledger_.count() == options_.jobs;
        } catch (const nats::error&) {
        } catch (const dunlin::context_cancelled&) {
        }
        return false;
    }

    int check(bool in_order) const {
        std::uint32_t missing = 0, unmade = 0;
        std::uint64_t executions = 0;
        std::int64_t expected = 0;
        for (std::uint32_t i = 0; i < options_.jobs; ++i) {
            missing += ledger_.executions(i) == 0;
            unmade += !ledger_.applied(i);
            executions += ledger_.executions(i);
            expected += ledger::amount(i);
        }
        std::uint32_t redelivered = 0, lost = 0, unconfirmed = 0, reconnects = 0, chosen = 0;
        for (unsigned w = 0; w < workers; ++w) {
            redelivered += ledger_.at(w).redelivered;
            lost += ledger_.at(w).lost;
            unconfirmed += ledger_.at(w).unconfirmed;
            reconnects += ledger_.at(w).reconnects;
            chosen += ledger_.at(w).chosen_deaths;
        }
        const bool once = ledger_.total() == expected && ledger_.count() == options_.jobs && unmade == 0;
        std::printf(
            "\n%u jobs in %.1f s; %u workers died, %u of them before, between, during or after effect and done(); %zu more things happened\n",
            options_.jobs, picture_.seconds(), picture_.deaths(), chosen, begun_.load());
        std::printf("  every job at least once        %s (%u missing)\n", missing == 0 ? "yes" : "NO", missing);
        std::printf("  every effect exactly once      %s (the sink's total is %lld, expected %lld)\n",
            once ? "yes" : "NO", static_cast<long long>(ledger_.total()), static_cast<long long>(expected));
        std::printf("  none lost, none left           %s\n", unmade == 0 ? "yes" : "NO");
        std::printf("  all workers that were not killed ended in order %s\n", in_order ? "yes" : "NO");
        std::printf(
            "  executions beyond the first    %llu: effects of workers that died, stood still or got no confirmation before done()\n"
            "                                 (seen by workers that lived on: %u redelivered, %u lost, %u not confirmed, %u reconnects)\n",
            static_cast<unsigned long long>(executions) - options_.jobs + missing, redelivered, lost, unconfirmed,
            reconnects);
        if (sent_again_ > 0) {
            std::printf(
                "  %u jobs had been lost by the servers: their sender, which keeps each until its result is there, has sent them again\n",
                sent_again_);
        }
        if (left_ > 0)
            std::printf("  %llu acknowledged jobs were not removed from the stream by the servers\n",
                static_cast<unsigned long long>(left_));
        return missing == 0 && once && unmade == 0 && in_order ? 0 : 1;
    }

    const show_options options_;
    nats_servers& servers_;
    const ledger& ledger_;
    picture picture_;
    std::minstd_rand random_;
    crew crew_;
    std::optional<nats::cluster> link_;
    std::optional<nats::queue<job>> queue_;
    std::uint64_t left_ = 0;  // in the stream, when all_done() looked
    bool idle_ = false;       // and nothing of it with the consumer
    std::string behind_;      // the server that settle() has given up, if any
    bool settled_ = true;     // else it has given up, and no server is known to be late
    int empty_ = 0;                 // times that nothing was left for so long, and results missing
    std::uint32_t sent_again_ = 0;
    unsigned newest_server_ = 3;
    std::atomic<std::size_t> begun_{0};
    std::atomic<int> spared_{-1};  // the worker that is frozen
};

}  // namespace

int show(const show_options& o) {
    const std::string user = system_user;
    nats_servers servers(3, "accounts { $SYS { users: [{ user: " + user + ", password: " + user + " }] } }\n");
    const ledger accounts(servers.folder() / "ledger", o.jobs);
    accounts.begin();
    return dunlin::run([&] { return coordinator(o, servers, accounts).run(); });
}

}  // namespace fleet
