// crash.cpp - see crash.h. Everything here may run in a signal handler on the alternate stack, so it allocates nothing
// itself (demangling does; at worst it makes the report shorter).
#include "sched/preempt/crash.h"

#include <dunlin/detail/atomic.hpp>

#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <string>
#include <typeinfo>
#include <unistd.h>

#include "platform/check.h"
#include "platform/clock.h"
#include "platform/demangle.h"
#include "platform/futex.h"
#include "platform/lock_check.h"
#include "platform/thread.h"
#include "sched/data/hooks.h"
#include "sched/data/steering.h"
#include "sched/goroutines/goroutine.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::sched {

namespace {

constexpr std::int64_t report_patience_ns = 10'000'000'000;

// The reporter: the address of its goroutine, which may move to another thread inside the what() of its exception;
// without a goroutine, the number of the thread.
platform::atomic<std::uintptr_t> reporter{0};
platform::atomic<pid_t> ending{0};  // the reporter's thread, when it is about to end the process through exit()

std::uintptr_t caller() noexcept {
    if (const goroutine* g = current_goroutine()) return reinterpret_cast<std::uintptr_t>(g);
    return static_cast<std::uintptr_t>(platform::thread_id());
}

void print_exception(platform::text_writer& out) noexcept {
    const std::type_info* type = abi::__cxa_current_exception_type();
    if (type == nullptr) {
        out << "an exception that is not of C++";
        return;
    }
    const platform::demangled_text readable = platform::demangled(type->name());
    out << (readable ? readable.get() : type->name());
    out.flush();  // what() is code of the program: it may do anything
    try {
        throw;
    } catch (const std::exception& e) {
        try {
            out << ": " << e.what();
        } catch (...) {
            out << ": (its what() throws)";
        }
    } catch (const char* text) {
        out << ": " << text;
    } catch (...) {
    }
}

}  // namespace

void print_identity(platform::text_writer& out, const goroutine* g) noexcept {
    out << "goroutine " << g->id;
    if (g->extra && !g->extra->name.empty()) (out << " \"").printable(g->extra->name) << '"';
}

void print_where(platform::text_writer& out, const std::source_location& where) noexcept {
    if (where.line() == 0) {
        out << "an unknown place";
        return;
    }
    const std::string_view path = where.file_name();
    const std::size_t slash = path.rfind('/');
    out << (slash == path.npos ? path : path.substr(slash + 1)) << ':' << where.line() << " in "
        << where.function_name();
}

void print_where(platform::text_writer& out, creation_place where, bool demangle) noexcept {
    if (where.code() != nullptr) {
        stack::print_symbol(out, where.code(), demangle);
    } else {
        print_where(out, where.location());
    }
}

void claim_report() noexcept {
    // The reporter must not be stopped in the middle of the report.
    if (machine* m = current_machine()) m->unstoppable = m->unstoppable + 1;
    platform::end_lock_checks();
    std::uintptr_t none = 0;
    const bool first = reporter.compare_exchange_strong(none, caller());
    if (!first && none != caller()) let_reports_finish();
    const steering* s = first ? steered() : nullptr;
    if (s == nullptr) return;
    platform::text_writer out(STDERR_FILENO);
    s->print(out);
}

bool reports_itself() noexcept { return reporter.load(std::memory_order_relaxed) == caller(); }

void tell_of_death() noexcept {
    static platform::atomic<bool> told{false};
    if (hooks.process_dies != nullptr && !told.exchange(true, std::memory_order_relaxed)) hooks.process_dies();
}

void let_reports_finish() noexcept {
    const std::uintptr_t reports = reporter.load(std::memory_order_acquire);
    if (reports == 0) return;
    // A handler of the program may end the process through exit(), and then comes here twice: from the destructors of
    // its thread_locals, and as a plain thread from atexit().
    if (reports == caller()) ending.store(platform::thread_id(), std::memory_order_relaxed);
    if (ending.load(std::memory_order_relaxed) == platform::thread_id()) return;
    // Not for ever: the report itself may hang, since what() may do anything.
    platform::atomic<std::uint32_t> never{0};
    const std::int64_t until = platform::real_now_ns() + report_patience_ns;
    while (platform::real_now_ns() < until) platform::futex_wait_until(never, 0, until);
    _exit(2);
}

void report_misuse(std::string_view what) noexcept {
    if (steering* s = steered()) s->stop_here(what);
    claim_report();
    {
        platform::text_writer out(STDERR_FILENO);
        out << "fatal: " << what << " (";
        if (const goroutine* g = current_goroutine()) {
            print_identity(out, g);
            out << ", created at ";
            print_where(out, g->created_at);
        } else {
            out << "a thread that is no goroutine";
        }
        out << ")\n";
        out.flush();
        stack::print_trace(out, stack::capture_trace(1));
    }
    std::abort();
}

void report_illegal_transition(const goroutine* g, goroutine_state expected, goroutine_state wanted) noexcept {
    claim_report();
    {
        platform::text_writer out(STDERR_FILENO);
        out << "fatal: a goroutine changes state that is not " << name(expected) << "\n    ";
        print_identity(out, g);
        out << " is " << name(g->state.load()) << ", expected " << name(expected) << " (to become " << name(wanted)
            << "); last wait: ";
        const wait_reason reason = g->reason.load();
        out << (reason == wait_reason::none ? "none" : name(reason)) << " at ";
        print_where(out, g->waits_at);
        out << "\n    likely cause: the same waiter was readied twice, or memory was overwritten\n";
        out.flush();
        stack::print_trace(out, stack::capture_trace(1), false);
    }
    std::abort();
}

}  // namespace dunlin::sched

namespace dunlin::inline v0_1::stack {

// No frame of the goroutine catches the exception. The stack is as it was when the exception was thrown
// (stack/invoke.cpp).
extern "C" [[gnu::visibility("hidden")]] void dunlin_uncaught_exception() {
    using namespace dunlin::sched;
    if (steering* s = steered()) {
        std::string what("uncaught exception: ");
        {
            platform::text_writer out(what);
            print_exception(out);
        }
        s->stop_here(what);
    }
    claim_report();
    const goroutine* g = current_goroutine();
    {
        platform::text_writer out(STDERR_FILENO);
        out << "fatal: uncaught exception in ";
        print_identity(out, g);
        out << ": ";
        print_exception(out);
        out << "\n    created at ";
        print_where(out, g->created_at);
        out << "\n    thrown at\n";
        out.flush();
        print_trace(out, capture_trace(1));
    }
    // A terminate handler of the program may log, or write a core file of its own. The default handler would only
    // repeat what has just been printed.
    const std::terminate_handler handler = std::get_terminate();
    if (handler != nullptr && handler != __gnu_cxx::__verbose_terminate_handler && handler != std::abort) handler();
    tell_of_death();
    platform::end_process(2);
}

}  // namespace dunlin::stack
