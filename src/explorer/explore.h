// explore.h - executes a case again and again, each time in another order of its steps, until one fails or all were
// tried.
//
// A case builds its objects and names its threads; it is called before each execution:
//
//     const explorer::result r = explorer::explore({.order = explorer::order::exhaustive}, [](explorer::scenario& s) {
//         auto& lock = s.make<platform::futex_lock>("lock");
//         auto& count = s.make<explorer::variable<int>>("count");
//         for (const char* name : {"a", "b"}) s.thread(name, [&] { lock.lock(); count.set(count.get() + 1);
//         lock.unlock(); }); s.at_end([&] { explorer::require(count.get() == 2, "an increment is lost"); });
//     });
//
// Must do    A case does the same when it is executed again: no real time, no real threads, no comparison of addresses.
// Whole      The state of a whole program (options::whole) is that of the process: everything before prepared() is done
//            once, and each execution is a forked child that goes on from there. Drawn orders only
//            (src/explorer/forked.cpp).
// Fails      An execution fails by require(), by a data race on a variable, by what ends a process (platform/check.h),
//            by threads that wait for ever, or by not ending.
// Then       The list of choices is shortened for as long as it still fails in the same way, and told as a story.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "explorer/types.h"
#include "explorer/world.h"

namespace dunlin::inline v0_1::explorer {

// A variable that a lock or an order of steps protects: each access is checked against all others.
template <class T>
class variable {
public:
    constexpr variable(T value = {}, const char* name = "a variable") noexcept : value_(value), name_(name) {}
    variable(const variable&) = delete;

    T get(const std::source_location& where = std::source_location::current()) const {
        if (world* w = here()) w->plain_access(this, false, name_, where);
        return value_;
    }
    void set(T value, const std::source_location& where = std::source_location::current()) {
        if (world* w = here()) w->plain_access(this, true, name_, where);
        value_ = value;
    }

private:
    T value_;
    const char* name_;
};

// Called in a thread of a case, or at its end.
void require(bool condition, std::string_view what);

// Called in a thread of a whole program: returns when no other thread can do anything until time passes. The first
// time, executions begin here.
inline void prepared() { here()->prepared(); }
// The calling thread sleeps in a system call, or computes, for this long.
inline void sleep_in_kernel(std::int64_t ns) { here()->sleep_in_kernel(ns); }
inline void compute(std::int64_t ns) { here()->compute(ns); }
// While this lives, the calling thread is in a function of libc: a signal finds it there.
class in_libc {
public:
    in_libc() : before_(here()->set_in_libc(true)) {}
    ~in_libc() {
        if (world* w = here()) w->set_in_libc(before_);
    }
    in_libc(const in_libc&) = delete;

private:
    bool before_;
};

class scenario {
public:
    // Lives until the execution has ended.
    template <class T, class... Args>
    T& make(std::string name, Args&&... args) {
        auto object = std::make_unique<holder<T>>(std::forward<Args>(args)...);
        T& result = object->value;
        names_.push_back({reinterpret_cast<std::uintptr_t>(&result), sizeof(T), std::move(name)});
        objects_.push_back(std::move(object));
        return result;
    }
    // For the story. Goes before the names that were given earlier, so that a part of something larger has its own.
    void name(const void* object, std::size_t size, std::string text) {
        names_.insert(names_.begin(), {reinterpret_cast<std::uintptr_t>(object), size, std::move(text)});
    }
    void thread(std::string name, std::function<void()> run) { threads_.push_back({std::move(name), std::move(run)}); }
    // Called when all threads have ended, outside of the simulation.
    void at_end(std::function<void()> check) { ends_.push_back(std::move(check)); }
    // Whole programs: called whenever no thread can do anything until time passes, outside of the simulation as well.
    // Returns what is wrong then, or nothing.
    void when_quiet(world::quiet_check check) { when_quiet_ = std::move(check); }

private:
    friend class explorer;
    friend class forked_explorer;

    struct object {
        virtual ~object() = default;
    };
    template <class T>
    struct holder final : object {
        template <class... Args>
        explicit holder(Args&&... args) : value(std::forward<Args>(args)...) {}
        T value;
    };

    std::vector<std::unique_ptr<object>> objects_;
    std::vector<world::thread_body> threads_;
    std::vector<world::named> names_;
    std::vector<std::function<void()>> ends_;
    world::quiet_check when_quiet_;
};

enum class order : std::uint8_t { random, pct, round_robin, exhaustive, delayed, held };

struct options {
    enum order order = order::exhaustive;
    memory model = memory::tso;
    std::uint64_t seed = 1;
    std::size_t executions = 1'000'000;  // at most
    unsigned depth = 3;                  // pct
    std::vector<source_range> places = {};  // held
    unsigned detours = ~0u;          // exhaustive: at most; all, if not given
    std::size_t max_steps = 5'000;
    bool times_out = true;               // a sleep may end by its deadline although other threads could go on
    bool whole = false;                  // a whole program: see above
    bool punctual = false;               // of a whole program: time jumps only where no thread can go on
    bool more_threads = true;            // of a whole program: threads can be started after its preparation
    bool signals = false;                // of a whole program: signals arrive (world.h)
    bool tells = true;                   // a failure is shortened, and told as a story
};

struct result {
    std::string failure;             // empty: none found
    std::string story;               // of the shortest execution that fails in this way
    std::vector<choice> choices;     // its choices, for replay()
    std::size_t executions = 0;
    std::size_t given_up = 0;        // of these, begun but equivalent to others
    std::size_t steps = 0;
    bool complete = false;           // exhaustive: there are no other orders
    std::uint64_t hash = 0;          // of all that was chosen and done; the same for the same seed

    bool holds() const noexcept { return failure.empty(); }
};

using case_function = std::function<void(scenario&)>;

result explore(const options& o, const case_function& build);

// Executes the case once, with these choices; the story is told whether it fails or not.
result replay(const options& o, const std::vector<choice>& choices, const case_function& build);

// "r0 f1 t0 v2": a thread runs, a store leaves a thread's buffer, a thread's sleep ends, a load finds an older value.
std::string text_of(const std::vector<choice>& choices);
// Throws std::invalid_argument, which names the word that is no choice.
std::vector<choice> choices_in(std::string_view text);

}  // namespace dunlin::explorer
