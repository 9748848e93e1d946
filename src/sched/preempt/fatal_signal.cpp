// fatal_signal.cpp - the handlers of the signals that end a process, see fatal_signal.h. Everything here runs on the
// alternate signal stack and allocates nothing itself (demangling does; at worst it makes the report shorter).
//
// Death      The handler sets the default action, blocks the signal, sends it to its own thread once more, with the
//            information that the kernel gave about it, and returns: the interrupted code is resumed with the signal
//            pending, and dies before its next instruction. So one way serves for an instruction that faults, for one
//            that does not fault again (a trap), and for a signal that was sent and will not come again.
// Faults     A stack that was overwritten leads the unwinder to addresses that do not exist. The handler of that fault
//            leaves the walk; the frames found so far are reported.
#include <dunlin/detail/atomic.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <unistd.h>

#include "sched/preempt/fatal_signal.h"
#include "platform/memory_map.h"
#include "platform/syscall.h"
#include "platform/thread.h"
#include "platform/usable.h"
#include "sched/goroutines/goroutine.h"
#include "sched/goroutines/thread_stack.h"
#include "sched/preempt/crash.h"
#include "sched/preempt/stack_capture.h"
#include "stack/signal_frame.h"
#include "stack/trace.h"

namespace dunlin::inline v0_1::sched {

namespace {

struct watched_signal {
    int number;
    const char* name;
    bool of_memory;                    // our handler is installed whatever the program has: such faults end a sample
                                       // (stack_capture.cpp)
    struct sigaction before = {};      // constant after the start
    platform::atomic<bool> used_up{false};  // SA_RESETHAND: it has been called

    constexpr watched_signal(int n, const char* text, bool memory) noexcept : number(n), name(text),
        of_memory(memory) {}
    bool is_plain(sighandler_t h) const noexcept { return !(before.sa_flags & SA_SIGINFO) && before.sa_handler == h; }
    bool had_handler() const noexcept { return !is_plain(SIG_DFL) && !is_plain(SIG_IGN); }
    bool was_ignored() const noexcept { return is_plain(SIG_IGN); }
};

constinit watched_signal all_watched[] = {
    {SIGSEGV, "SIGSEGV", true}, {SIGBUS, "SIGBUS", true},   {SIGILL, "SIGILL", false},
    {SIGFPE, "SIGFPE", false},  {SIGABRT, "SIGABRT", false},
};

watched_signal& watched(int signal) noexcept {
    for (watched_signal& w : all_watched) {
        if (w.number == signal) return w;
    }
    return all_watched[0];
}

// For the reporter's thread only: where to go on after a fault during the walk.
sigjmp_buf* escape = nullptr;

// In the child of a fork(): the goroutine that called fork(); null: a plain thread called it.
const goroutine* forked_from = nullptr;

// ---- what is said ---------------------------------------------------------------------------------------------------

struct code_text {
    int signal, code;
    const char* text;
};

constexpr code_text reasons[] = {
    {SIGSEGV, SEGV_MAPERR, ", where there is no memory"},
    {SIGSEGV, SEGV_ACCERR, ", which is protected"},
    {SIGBUS, BUS_ADRALN, ", which is not aligned"},
    {SIGBUS, BUS_ADRERR, ", beyond the end of a mapped file"},
    {SIGFPE, FPE_INTDIV, ": an integer was divided by zero"},
    {SIGFPE, FPE_INTOVF, ": an integer overflowed"},
};

const char* reason(const siginfo_t& info) noexcept {
    for (const code_text& r : reasons) {
        if (r.signal == info.si_signo && r.code == info.si_code) return r.text;
    }
    if (info.si_signo == SIGILL) {
        return ": not an instruction of this processor, or a trap that the compiler has put there";
    }
    return "";
}

void print_cause(platform::text_writer& out, const siginfo_t& info, const void* context) noexcept {
    if (info.si_code <= 0) {
        out << (info.si_signo == SIGABRT ? ": abort() was called" : ": it was raised");
    } else if (info.si_signo == SIGFPE || info.si_signo == SIGILL) {
        out << " at " << reinterpret_cast<const void*>(stack::interrupted_pc(context)) << reason(info);
    } else if (info.si_code == SI_KERNEL) {
        out << ": it touched an address that no program can have (a pointer that was overwritten?)";
    } else if (reinterpret_cast<std::uintptr_t>(info.si_addr) == stack::interrupted_pc(context)) {
        out << ": it called " << info.si_addr << ", where there is no code";
    } else {
        out << ": it touched " << info.si_addr << reason(info);
    }
}

// Prints the stack of the code that was interrupted at `context`, as far as it can be walked.
[[gnu::noinline]] void print_stack(platform::text_writer& out, void* context, bool hide_runtime) noexcept {
    out.flush();
    stack::deep_trace frames;
    stack::interrupted_call call(context);
    sigjmp_buf out_of_walk;
    if (sigsetjmp(out_of_walk, 0) == 0) {
        escape = &out_of_walk;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        call.step_out_of_nowhere();
        stack::capture_deep_trace(frames);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    escape = nullptr;
    stack::print_deep_trace(out, frames, hide_runtime);
}

// A stack that has become too small.
struct overflow {
    std::size_t beyond;  // how far below its end the stack pointer is; 0: the guard has stopped it at the end
    std::size_t needed;  // for what is on it now
};

// How a goroutine's stack has overflowed when the stack pointer was `sp` and `touched` was touched; needed == 0: it has
// not. A frame that is larger than the guard may pass over it. Then the stack pointer is where there is no memory, or
// in another goroutine's stack, and what is touched or called from there may be anything. The program may have switched
// to a stack of its own; but that is memory which can be read, and not among ours.
overflow find_overflow(const stack::slot& s, const void* touched, std::uintptr_t sp) noexcept {
    constexpr std::size_t largest_frame = std::size_t{1} << 31;  // of what an instruction can subtract
    const auto low = reinterpret_cast<std::uintptr_t>(s.low());
    const stack::arena::found place = stack::stacks.lookup(touched);
    if (place.in_guard && place.owner == &s) return {0, s.usable() + 1};
    if (sp >= low || low - sp > largest_frame) return {};
    bool among_ours = false;
    stack::stacks.for_each_range([&](platform::memory_range r) {
        among_ours = among_ours || sp - reinterpret_cast<std::uintptr_t>(r.begin) < r.bytes;
    });
    std::uint8_t byte;
    if (!among_ours && platform::read_own_memory(sp, &byte, 1) != -EFAULT) return {};
    return {low - sp, s.usable() + (low - sp)};
}

void advise(platform::text_writer& out, const goroutine& g, const overflow& how) noexcept {
    constexpr std::size_t mib = std::size_t{1} << 20, largest = stack::slot_bytes(stack::class_count - 1) / 2 / mib;
    // Of sizes that are all powers of two, the next that is larger: the stack itself has a little less than one.
    const std::size_t larger = std::bit_ceil(std::max(how.needed + mib / 2, mib)) / mib;
    out << "\n    what to do: "
        << (how.beyond != 0 ? "put what is large on the heap (a std::vector)" : "look for endless recursion below");
    if (larger > largest) {
        out << "; no stack can be larger\n";
        return;
    }
    out << (how.beyond != 0 ? ", or" : "; else") << " start it with a larger stack: ";
    if (g.flags & goroutine::main) {
        out << "run(run_options{.main_stack_size = " << larger << " << 20}, f)\n";
        return;
    }
    out << "go(go_options{.stack_size = " << larger << " << 20}, f),\n"
           "    or give all goroutines one: run_options::stack_size, or DUNLIN_STACK_SIZE="
        << larger << "M in the environment\n";
}

[[noreturn]] void report_overflow(const goroutine* g, const overflow& how, const siginfo_t* info,
    void* context) noexcept {
    claim_report();
    {
        platform::text_writer out(STDERR_FILENO);
        out << "fatal: stack overflow in ";
        print_identity(out, g);
        out << ": its stack of ";
        out.bytes(static_cast<std::uint64_t>(g->stack->usable()));
        if (how.beyond == 0) {
            out << " is full";
        } else {
            out << " ends at " << static_cast<const void*>(g->stack->low()) << ", and a frame reaches ";
            out.bytes(static_cast<std::uint64_t>(how.beyond));
            out << " below that: a local variable is too large for it";
        }
        out << " (touched " << info->si_addr << ")\n    created at ";
        print_where(out, g->created_at, false);  // this thread may hold malloc's lock
        advise(out, *g, how);
        print_stack(out, context, true);
    }
    tell_of_death();
    _exit(2);
}

void report_signal(const watched_signal& w, const goroutine* g, const siginfo_t* info, void* context) noexcept {
    claim_report();
    platform::text_writer out(STDERR_FILENO);
    out << "fatal: " << w.name << " in ";
    if (g != nullptr) {
        print_identity(out, g);
        if (forked_from != nullptr) out << ", in the child of a fork()";
    } else {
        out << "a thread of the runtime, outside of any goroutine";
    }
    print_cause(out, *info, context);
    if (g != nullptr) {
        out << "\n    created at ";
        print_where(out, g->created_at, false);  // this thread may hold malloc's lock
    }
    if (forked_from != nullptr) {
        out << "\n    what to do: a goroutine that has called fork() must exec or _exit() in the child, and must not return there";
    }
    out << '\n';
    print_stack(out, context, g != nullptr);
}

// ---- what is done ---------------------------------------------------------------------------------------------------

// Ensures that the process dies when the handler returns (Death).
void die(int signal, const siginfo_t* info) noexcept {
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, nullptr);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    pthread_sigmask(SIG_BLOCK, &one, nullptr);
    siginfo_t again = *info;
    const long process = platform::raw_syscall(SYS_getpid), thread = platform::raw_syscall(SYS_gettid);
    const long info_address = platform::syscall_arg(&again);
    if (platform::raw_syscall(SYS_rt_tgsigqueueinfo, process, thread, signal, info_address) == 0) return;
    platform::send_signal(static_cast<pid_t>(thread), signal);
}

// False: there is no such handler any more, because SA_RESETHAND has reset it to the default action.
bool call_earlier_handler(watched_signal& w, siginfo_t* info, void* context) noexcept {
    if (w.before.sa_flags & SA_RESETHAND) {
        if (w.used_up.exchange(true)) return false;
        ::signal(w.number, SIG_DFL);
    }
    if (w.before.sa_flags & SA_SIGINFO) {
        w.before.sa_sigaction(w.number, info, context);
    } else {
        w.before.sa_handler(w.number);
    }
    return true;
}

// Did a goroutine, or the runtime, cause this signal? Also on the thread's own stack.
bool is_ours(const machine* m, const siginfo_t* info) noexcept {
    if (m == nullptr) return forked_from != nullptr && info->si_code > 0;
    return info->si_code > 0 || (info->si_code == SI_TKILL && info->si_pid == getpid());
}

void on_fatal_signal(int signal, siginfo_t* info, void* context) {
    watched_signal& w = watched(signal);
    machine* m = own_machine();
    const bool sent = info->si_code <= 0;
    if (!sent && current_machine() != nullptr) end_sample_that_faults(m);
    if (!sent) end_walk_that_faults();
    if (w.had_handler() && call_earlier_handler(w, info, context)) return;
    if (sent && w.was_ignored()) return;
    const int kept = errno;
    if (is_ours(m, info)) {
        if (reports_itself()) {
            if (!sent && escape != nullptr) siglongjmp(*escape, 1);
        } else {
            const goroutine* g = m != nullptr ? m->current.load(std::memory_order_relaxed) : forked_from;
            if (!sent && m != nullptr && g != nullptr && g->stack != nullptr && w.of_memory) {
                // What is on another stack than its goroutine's overflows none.
                const bool elsewhere = machine_behind() != nullptr || stack::interrupts_alternate_stack(context);
                const std::uintptr_t sp = elsewhere ? UINTPTR_MAX : stack::interrupted_sp(context);
                const overflow how = find_overflow(*g->stack, info->si_addr, sp);
                if (how.needed != 0) report_overflow(g, how, info, context);
            }
            report_signal(w, g, info, context);
        }
    }
    if (reports_itself()) tell_of_death();
    die(signal, info);
    errno = kept;
}

}  // namespace

void install_crash_handlers() noexcept {
    static bool installed = false;  // as in install_freeze_handler()
    if (std::exchange(installed, true)) return;
    for (watched_signal& w : all_watched) {
        sigaction(w.number, nullptr, &w.before);
        struct sigaction ours {};
        ours.sa_sigaction = on_fatal_signal;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
        sigemptyset(&ours.sa_mask);
        if (w.had_handler()) {
            if (!w.of_memory) continue;
            // The kernel then blocks the signals that the earlier handler has asked for. SA_RESETHAND is not copied: it
            // would remove our handler.
            ours.sa_mask = w.before.sa_mask;
            ours.sa_flags = SA_SIGINFO | (w.before.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART));
        }
        sigaction(w.number, &ours, nullptr);
    }
}

bool crash_handlers_in_force() noexcept {
    for (const watched_signal& w : all_watched) {
        struct sigaction now {};
        sigaction(w.number, nullptr, &now);
        if (w.of_memory && (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_fatal_signal)) return false;
    }
    return true;
}

void leave_runtime_in_child() noexcept {
    constexpr const char* why =
        "dunlin is used in the child of a fork(): its threads stayed in the parent (exec first)";
    platform::not_after_fork.store(why, std::memory_order_relaxed);
    const machine* m = own_machine();
    if (m == nullptr) return;
    forked_from = m->current.load(std::memory_order_relaxed);
    set_current_machine(nullptr);
    forget_machine_behind();
}

}  // namespace dunlin::sched
