// picture.h - what ./dev cluster shows meanwhile: drawn again and again in a terminal, lines elsewhere.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <unistd.h>

#include <dunlin/nats.hpp>

#include "ledger.h"

namespace fleet {

class picture {
public:
    picture(const ledger& l, std::uint32_t jobs) : ledger_(l), jobs_(jobs), terminal_(isatty(STDOUT_FILENO) != 0) {}

    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
    void note(const std::string& what) const {
        char line[256];
        std::snprintf(line, sizeof line, "%5.1f s  %s", seconds(), what.c_str());
        std::lock_guard guard(mutex_);
        if (!terminal_) {
            std::puts(line);
            std::fflush(stdout);
        }
        notes_.emplace_back(line);
        if (notes_.size() > 8) notes_.pop_front();
    }
    // What has happened to it; empty: it is well.
    void server(const std::string& name, const std::string& state) const {
        std::lock_guard guard(mutex_);
        servers_[name] = state;
    }
    // Another one takes its place.
    void server_replaced(const std::string& before, const std::string& by) const {
        std::lock_guard guard(mutex_);
        std::replace(names_.begin(), names_.end(), before, by);
    }
    void worker(unsigned w, const std::string& state) const {
        std::lock_guard guard(mutex_);
        workers_.at(w) = state;
    }
    void count_death() const { deaths_.fetch_add(1); }
    unsigned deaths() const { return deaths_.load(); }

    template <class Pid>
    void draw(Pid&& pid) {
        std::uint32_t redelivered = 0;
        for (unsigned w = 0; w < fleet::workers; ++w) redelivered += ledger_.at(w).redelivered;
        const std::uint32_t done = ledger_.count();
        char counts[200];
        std::snprintf(counts, sizeof counts, "sent %u   waiting %llu   in flight %llu   done %u of %u   redelivered %u",
            sent.load(), static_cast<unsigned long long>(size.waiting), static_cast<unsigned long long>(size.in_flight),
            done, jobs_, redelivered);
        std::lock_guard guard(mutex_);
        if (!terminal_) {
            if (seconds() < next_line_) return;
            next_line_ = seconds() + 2;
            std::printf("%5.1f s  %s\n", seconds(), counts);
            std::fflush(stdout);
            return;
        }
        std::string text = lines_ > 0 ? "\x1b[" + std::to_string(lines_) + "A" : "";
        lines_ = 0;
        const auto add = [&](const std::string& line) {
            text += "\x1b[2K" + line + "\n";
            ++lines_;
        };
        const std::size_t filled = jobs_ > 0 ? std::size_t{40} * done / jobs_ : 0;
        add("[" + std::string(filled, '#') + std::string(40 - filled, '.') + "]  " +
            std::to_string(static_cast<int>(seconds())) + " s");
        add(counts);
        std::string line = "servers  ";
        for (const std::string& name : names_) {
            const std::string& state = servers_[name];
            line += name + " " + (state.empty() ? "up" : "\x1b[31m" + state + "\x1b[0m") +
                    (leader == name ? " (leader)" : "") + "    ";
        }
        add(line);
        for (unsigned w = 0; w < fleet::workers; ++w) {
            const auto& p = ledger_.at(w);
            add("worker " + std::to_string(w + 1) + "  pid " + std::to_string(pid(w)) + "  done " +
                std::to_string(p.done.load()) + "  redelivered " + std::to_string(p.redelivered.load()) + "  " +
                "\x1b[31m" + workers_.at(w) + "\x1b[0m");
        }
        for (std::size_t i = 0; i < 8; ++i) add(i < notes_.size() ? notes_[i] : "");
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    }
    void close() {
        draw([](unsigned) { return 0; });
    }

    std::atomic<std::uint32_t> sent{0};
    // Of the one that draws.
    std::string leader;
    dunlin::nats::queue_size size{};

private:
    const ledger& ledger_;
    const std::uint32_t jobs_;
    const bool terminal_;
    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    mutable std::atomic<unsigned> deaths_{0};
    mutable std::mutex mutex_;
    mutable std::deque<std::string> notes_;
    mutable std::array<std::string, 3> names_{"s1", "s2", "s3"};
    mutable std::map<std::string, std::string> servers_;
    mutable std::array<std::string, fleet::workers> workers_;
    double next_line_ = 0;
    int lines_ = 0;
};

}  // namespace fleet
