#include "api/settings.h"

#include <csignal>
#include <stdexcept>
#include <string>
#include <string_view>

#include <dunlin/go.hpp>
#include <dunlin/runtime.hpp>

#include "platform/cpu_count.h"
#include "platform/environment.h"
#include "platform/thread.h"
#include "platform/valgrind.h"
#include "sched/data/types.h"
#include "sched/preempt/preempt.h"

namespace dunlin::inline v0_1::api {

unsigned default_max_procs() {
    for (const char* name : {"DUNLIN_MAXPROCS", "GOMAXPROCS"}) {
        if (const auto n = platform::environment_number(name, 1, sched::max_procs_limit))
            return static_cast<unsigned>(*n);
    }
    const unsigned n = platform::processors_for(platform::affinity_cpus(), platform::cpu_quota().cpus());
    return n < sched::max_procs_limit ? n : sched::max_procs_limit;
}

void check_stack_size(const char* operation, std::size_t bytes) {
    const std::size_t most = stack::usable_bytes(stack::class_count - 1);
    if (bytes >= min_stack_size && bytes <= most) return;
    throw std::invalid_argument(std::string(operation) + ": stack_size " + std::to_string(bytes) +
                                " is not between the minimum of " + std::to_string(min_stack_size) +
                                " bytes and the maximum of " + std::to_string(most) + " bytes");
}

unsigned default_stack_class() {
    const auto bytes =
        platform::environment_size("DUNLIN_STACK_SIZE", min_stack_size, stack::usable_bytes(stack::class_count - 1));
    if (bytes) return stack::class_for(*bytes);
    if (stack::sanitizing) return stack::checked_class;
    if (platform::under_valgrind()) return stack::dense_class;  // valgrind leaves little address space
    return stack::class_like_a_thread(platform::space_for_stacks());
}

void choose_guards() {
    const std::string_view text = platform::environment_text("DUNLIN_STACK_GUARD");
    if (text.empty()) return;
    if (const auto kind = platform::parse_guard_kind(text)) {
        stack::stacks.use_guards(*kind);
    } else {
        platform::complain("DUNLIN_STACK_GUARD", text, "is not one of auto, madvise, mprotect, canary, none");
    }
}

void choose_preemption() {
    using sched::preemption;
    // Valgrind runs one thread at a time, for long: then a thread that is stopped in a handler is hard to tell from one
    // that hangs.
    if (platform::under_valgrind()) sched::preemption_mode = preemption::take;
    const std::string_view text = platform::environment_text("DUNLIN_PREEMPTION");
    if (text == "off") {
        sched::preemption_mode = preemption::off;
    } else if (text == "take") {
        sched::preemption_mode = preemption::take;
    } else if (text == "anywhere") {
        sched::preemption_mode = preemption::signal;
        sched::preempt_anywhere = true;
    } else if (text == "signal") {
        sched::preemption_mode = preemption::signal;
    } else if (!text.empty()) {
        platform::complain("DUNLIN_PREEMPTION", text, "is not one of signal, take, off, anywhere");
    }
    const std::string_view number = platform::environment_text("DUNLIN_PREEMPTION_SIGNAL");
    if (number.empty()) return;
    const auto signal = platform::parse_number(number);
    // Not a signal that the kernel sends for faults, nor one that cannot be caught, nor libc's own (32, 33).
    const auto usable = [](std::uint64_t n) {
        for (const int no : {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, 32, 33}) {
            if (n == static_cast<std::uint64_t>(no)) return false;
        }
        return n >= 1 && n <= 64;
    };
    if (signal && usable(*signal)) {
        sched::preemption_signal = static_cast<int>(*signal);
    } else {
        platform::complain(
            "DUNLIN_PREEMPTION_SIGNAL", number, "is not the number of a signal that a program can handle");
    }
}

void check_barriers_setting() {
    const std::string_view text = platform::environment_text("DUNLIN_BARRIERS");
    if (!text.empty() && text != "auto" && text != "symmetric")
        platform::complain("DUNLIN_BARRIERS", text, "is not one of auto, symmetric");
}

}  // namespace dunlin::api
