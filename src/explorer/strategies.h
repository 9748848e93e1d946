// strategies.h - the orders in which a simulation makes its steps.
//
//   random       each possible step may be next; how long stores stay in buffers, how long sleeps last, and how long a
//                thread goes on before a switch is drawn for each execution
//   pct          "A randomized scheduler with probabilistic guarantees of finding bugs" (Burckhardt and others, 2010):
//                the threads, and their buffers, have random priorities, and at d - 1 random steps the one that runs
//                gets the lowest. With n threads and k steps, a fault that needs d orders is found with a probability
//                of at least 1 / (n k^(d-1))
//   delayed      random, and now and then a thread is kept from its CPU for some time, together with what is in its
//                buffer: more often when something is there. For long executions, where the other threads need many
//                steps before that does harm
//   held         random, and once or twice in an execution a thread that comes to given lines of the sources is kept
//                there, just before its operation or some steps after it: for some steps, or until no other thread can
//                do anything; half of the holds keep what is in its buffer, too. Two threads may be kept at a time.
//                ("Active testing": Sen, 2008.) To find what one step of a long program is for
//   round_robin  each thread makes one step in turn, and buffers empty at once
//   exhaustive   every order, each class of equivalent ones once (sleep sets: Godefroid, 1996). With a limit on
//                detours: every order that has no more of them, without reduction, since the two together would lose
//                some. A detour is a switch away from a thread that could go on, a sleep that ends although a thread
//                could go on, a store that stays in its buffer while something else happens
//   replay       a list of choices. Those that are not possible are skipped; after the list, the thread that ran last
//                goes on, and buffers empty at once: so a shorter list is a schedule as well
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "platform/random.h"
#include "explorer/types.h"

namespace dunlin::inline v0_1::explorer {

class random_order final : public strategy {
public:
    explicit random_order(std::uint64_t seed) noexcept : seed_(seed) {}
    bool begin() override;
    std::size_t pick(const std::vector<transition>& possible, unsigned last) override;
    unsigned pick_value(unsigned count) override;
    void ended(std::size_t) override {}

private:
    std::uint64_t seed_;
    std::uint64_t execution_ = 0;
    platform::random_source random_;
    std::uint32_t flush_weight_ = 16, stay_weight_ = 16, time_out_weight_ = 16;
    std::uint32_t older_ = 2;  // one load in this many may find an older value
};

class delayed_order final : public strategy {
public:
    explicit delayed_order(std::uint64_t seed) noexcept : seed_(seed) {}
    bool begin() override;
    std::size_t pick(const std::vector<transition>& possible, unsigned last) override;
    unsigned pick_value(unsigned count) override;
    void ended(std::size_t) override {}

private:
    void begin_delay(const std::vector<transition>& possible, unsigned last) noexcept;

    std::uint64_t seed_;
    std::uint64_t execution_ = 0;
    platform::random_source random_;
    std::uint32_t stay_weight_ = 64;
    std::uint32_t one_in_ = 64, one_in_with_buffer_ = 16, longest_ = 200;
    std::uint32_t left_ = 0;   // of the delay, in steps
    unsigned delayed_ = 0;     // the thread that is delayed
};

class held_order final : public strategy {
public:
    held_order(std::uint64_t seed, std::vector<source_range> places) : seed_(seed), places_(std::move(places)) {}
    bool begin() override;
    void arrives(unsigned thread, const operation& next) override;
    bool keeps_back(const choice& c) const noexcept override;
    std::size_t pick(const std::vector<transition>& possible, unsigned last) override;
    unsigned pick_value(unsigned count) override;
    void ended(std::size_t) override {}

private:
    static constexpr unsigned most_holds = 2;
    struct kept {
        std::uint32_t left = 0;  // in steps; 0: none is kept
        unsigned thread = 0;
        bool with_buffer = false;
    };
    struct hold {
        std::uint32_t arrival = 0;  // arrivals up to the one that is held; 0: none is left
        bool after = false;         // the thread is kept when it has done the operation,
        std::uint32_t further = 0;  // and this many others: functions may do what the lines are for
        std::uint32_t steps = 0;
        bool keeps_buffer = false;
    };

    void draw(hold& h) noexcept;
    void begin_hold(const hold& h, unsigned thread) noexcept;
    void let_one_go() noexcept;
    bool is_place(const std::source_location& where);

    std::uint64_t seed_;
    std::vector<source_range> places_;
    std::vector<std::pair<const char*, bool>> files_;  // by the addresses of their names: is any place in the file?
    std::uint64_t execution_ = 0;
    platform::random_source random_;
    std::array<hold, most_holds> holds_{};
    std::array<bool, max_threads> was_there_{};
    std::array<hold, max_threads> goes_further_{};  // arrival: operations left until the thread is kept
    std::uint32_t flush_weight_ = 16, stay_weight_ = 16, older_ = 2;
    std::array<kept, most_holds> kept_{};
};

// Threads that look again and again would keep the thread that they wait for from its CPU for ever (two machines that
// search while the monitor, at a lower priority, is about to hand a processor on). So a long execution draws its
// priorities again from time to time.
class pct_order final : public strategy {
public:
    static constexpr std::size_t strict_steps = 30'000, steps_of_others = 1'000;
    pct_order(std::uint64_t seed, unsigned depth) noexcept : seed_(seed), depth_(depth) {}
    bool begin() override;
    std::size_t pick(const std::vector<transition>& possible, unsigned last) override;
    bool is_fair() const noexcept override { return false; }
    unsigned pick_value(unsigned count) override;
    void ended(std::size_t steps) override { longest_ = longest_ < steps ? steps : longest_; }

private:
    void draw_priorities() noexcept;

    std::uint64_t seed_;
    unsigned depth_;
    std::uint64_t execution_ = 0;
    platform::random_source random_;
    std::size_t longest_ = 50, step_ = 0;
    std::array<std::uint32_t, 3 * max_threads> priority_{};
    std::vector<std::size_t> changes_;
    std::uint32_t lowest_ = 0;
};

class round_robin_order final : public strategy {
public:
    bool begin() override { return !std::exchange(done_, true); }
    std::size_t pick(const std::vector<transition>& possible, unsigned last) override;
    unsigned pick_value(unsigned) override { return 0; }
    void ended(std::size_t) override {}

private:
    bool done_ = false;
};

class exhaustive_order final : public strategy {
public:
    static constexpr unsigned unlimited = std::numeric_limits<unsigned>::max();
    explicit exhaustive_order(unsigned detours) noexcept : limit_(detours) {}
    bool begin() override;
    std::size_t pick(const std::vector<transition>& possible, unsigned last) override;
    unsigned pick_value(unsigned count) override;
    void ended(std::size_t) override {}

private:
    struct node {
        std::vector<transition> possible;   // empty: a choice of values
        // need not be chosen here: they already were, or were chosen earlier and nothing has touched them since
        std::vector<transition> asleep;
        unsigned chosen = 0, count = 0;
        unsigned last = 0;                  // the thread that ran before
        unsigned detours = 0;           // up to here
    };

    bool reduces() const noexcept { return limit_ == unlimited; }
    bool may_choose(const node& n, std::size_t i) const noexcept;
    static unsigned detours(const node& n, std::size_t i) noexcept;
    bool choose_next(node& n, std::size_t from) noexcept;
    void go_on_from(const node& n);

    unsigned limit_;
    bool first_ = true;
    std::vector<node> path_;
    std::size_t depth_ = 0;
    std::vector<transition> asleep_;  // at the next node
    unsigned detours_ = 0;
};

class replayed_order final : public strategy {
public:
    explicit replayed_order(std::vector<choice> choices) noexcept : choices_(std::move(choices)) {}
    bool begin() override {
        at_ = 0;
        return !std::exchange(done_, true);
    }
    std::size_t pick(const std::vector<transition>& possible, unsigned last) override;
    unsigned pick_value(unsigned count) override;
    void ended(std::size_t) override {}

private:
    std::vector<choice> choices_;
    std::size_t at_ = 0;
    bool done_ = false;
};

}  // namespace dunlin::explorer
