// Programs that a signal ends, or does not end: faults and raised signals in goroutines and threads, with handlers of
// the program's before and after.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dunlin/dunlin.hpp>
#include <dunlin/trace.hpp>

#include "support/scenarios.h"

using namespace std::chrono_literals;

namespace {

[[noreturn]] void for_ever() {
    for (;;) dunlin::sleep_for(1h);
}

[[noreturn]] void say_and_leave(const char* text) {
    std::printf("%s\n", text);
    std::fflush(stdout);
    _exit(7);
}

// ---- kinds of death -------------------------------------------------------------------------------------------------

[[maybe_unused]] volatile int zero = 0, seven = 7;  // a processor that may divide by zero needs neither
int* volatile nothing = nullptr;

[[gnu::noinline]] void write_to_null() { *nothing = 1; }
[[gnu::noinline]] void write_to_constant() { *const_cast<volatile char*>("constant") = 'x'; }
[[gnu::noinline]] void divide_by_zero() {
#if defined(__x86_64__)
    zero = seven / zero;
#else
    raise(SIGFPE);  // the processor divides by zero
#endif
}
[[gnu::noinline]] void no_instruction() {
#if defined(__x86_64__)
    asm volatile("ud2");
#elif defined(__aarch64__)
    asm volatile(".inst 0");
#endif
}
[[gnu::noinline]] void read_behind_the_end() {
    FILE* const f = std::tmpfile();
    auto* p = static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fileno(f), 0));
    zero = p[0];
}
[[gnu::noinline]] void throw_a_number() { throw 42; }
[[gnu::noinline]] void throw_through_noexcept() noexcept { throw_a_number(); }
[[gnu::noinline]] void call_abort() { std::abort(); }
[[gnu::noinline]] void raise_segv() { raise(SIGSEGV); }
void (*volatile no_function)() = nullptr;
[[gnu::noinline]] void call_null() {
    no_function();
    zero = 1;  // not a tail call
}

// What a call of a pure virtual function comes to.
[[gnu::noinline]] void call_pure() { abi::__cxa_pure_virtual(); }

template <void (*Death)()>
int in_goroutine() {
    dunlin::run([] {
        dunlin::chan<int> over;
        dunlin::go({.name = "broken"}, [over] {
            Death();
            std::printf("survived\n");
            std::fflush(stdout);
            over.send(1);
        });
        over.recv();
    });
    return 0;
}

template <void (*Death)()>
int in_main_goroutine() {
    return dunlin::run([] {
        Death();
        return 0;
    });
}

template <void (*Death)()>
int in_thread() {
    dunlin::run([] {
        std::thread(Death).join();
        std::printf("survived\n");
    });
    return 0;
}

[[gnu::noinline]] void write_to_null_on_thread_stack() {
    dunlin::on_thread_stack([] { write_to_null(); });
}
[[gnu::noinline]] void abort_on_thread_stack() {
    dunlin::on_thread_stack([] { call_abort(); });
}

int four_at_once() {
    dunlin::run({.max_procs = 4}, [] {
        static std::atomic<int> ready{0};
        for (int i = 0; i < 4; ++i) {
            dunlin::go([i] {
                ready.fetch_add(1);
                while (ready.load() < 4) dunlin::yield();
                if (i == 0) divide_by_zero();
                if (i == 1) throw 42;
                write_to_null();
            });
        }
        for_ever();
    });
    return 0;
}

// Frames that lead the unwinder astray.
[[gnu::noinline]] void fault_with_a_ruined_stack() {
    auto* const frame = static_cast<void* volatile*>(__builtin_frame_address(0));
    for (int i = 0; i < 8; ++i) frame[i] = reinterpret_cast<void*>(0x10);
    write_to_null();
}

// ---- sent -----------------------------------------------------------------------------------------------------------

int killed_from_outside() {
    const pid_t target = getpid();
    dunlin::run([=] {
        const long thread = syscall(SYS_gettid);
        if (fork() == 0) {
            usleep(20'000);
            syscall(SYS_tgkill, target, thread, SIGSEGV);
            _exit(0);
        }
        for (;;) pause();
    });
    return 0;
}

void kill_self() {
    kill(getpid(), SIGBUS);
    dunlin::sleep_for(200ms);
}

void ignore(int signal) {
    struct sigaction a {};
    a.sa_handler = SIG_IGN;
    sigaction(signal, &a, nullptr);
}

int ignored_when_raised() {
    ignore(SIGSEGV);
    return in_goroutine<raise_segv>();
}

int ignored_when_killed() {
    ignore(SIGBUS);
    return in_goroutine<kill_self>();
}

int ignored_fault() {
    ignore(SIGSEGV);
    return in_goroutine<write_to_null>();
}

// ---- handlers of the program's --------------------------------------------------------------------------------------

std::atomic<int> calls{0};

void* volatile wanted_address = nullptr;

void install(int signal, int flags, void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction a {};
    a.sa_sigaction = handler;
    a.sa_flags = SA_SIGINFO | flags;
    sigaddset(&a.sa_mask, SIGUSR1);
    sigaction(signal, &a, nullptr);
}

bool is_blocked(int signal) {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return sigismember(&now, signal) == 1;
}

void tell_and_leave(int signal, siginfo_t* info, void* context) {
    const bool sensible = context != nullptr && info->si_signo == signal;
    char here;
    stack_t other{};
    sigaltstack(nullptr, &other);
    const bool alternate =
        &here >= static_cast<char*>(other.ss_sp) && &here < static_cast<char*>(other.ss_sp) + other.ss_size;
    std::printf("signal %d, %s, address %p, SIGUSR1 %s, itself %s, %s stack\n", signal, sensible ? "sensible" : "wrong",
        info->si_addr, is_blocked(SIGUSR1) ? "blocked" : "free", is_blocked(signal) ? "blocked" : "free",
        alternate ? "alternate" : "its own");
    std::fflush(stdout);
    _exit(7);
}

int handler_before() {
    install(SIGSEGV, 0, tell_and_leave);
    return in_goroutine<write_to_null>();
}

int handler_before_on_signal_stack() {
    install(SIGSEGV, SA_ONSTACK | SA_NODEFER, tell_and_leave);
    return in_goroutine<write_to_null>();
}

std::atomic<bool> reporting{false};

// As a crash reporter does: it takes its time, and the process is to end with what it says.
void report_at_length(int, siginfo_t*, void*) {
    reporting = true;
    const auto used = [] {
        timespec t{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
    };
    for (const auto end = used() + 300ms; used() < end;) {}
    say_and_leave("reported");
}

// The run() returns while the handler is at work. With one processor main gets on because the goroutine in its handler
// has lost it.
int handler_that_outlasts_the_run(unsigned processors) {
    install(SIGSEGV, SA_ONSTACK, report_at_length);
    dunlin::run(dunlin::run_options{.max_procs = processors}, [] {
        dunlin::go([] { write_to_null(); });
        while (!reporting) dunlin::yield();
    });
    std::printf("left behind\n");
    return 0;
}

int handler_before_for_abort() {
    install(SIGABRT, 0, tell_and_leave);
    return in_goroutine<call_abort>();
}

int plain_handler_before() {
    struct sigaction a {};
    a.sa_handler = [](int) { say_and_leave("called"); };
    sigaction(SIGSEGV, &a, nullptr);
    return in_goroutine<write_to_null>();
}

int handler_after() {
    dunlin::run([] {
        install(SIGSEGV, 0, tell_and_leave);
        dunlin::go([] { write_to_null(); });
        for_ever();
    });
    return 0;
}

// As breakpad and its like do: they call what was there before them.
struct sigaction before_me;
int handler_after_that_passes_on() {
    dunlin::run([] {
        struct sigaction a {};
        a.sa_flags = SA_SIGINFO;
        a.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
            std::printf("mine\n");
            std::fflush(stdout);
            before_me.sa_sigaction(signal, info, context);
        };
        sigaction(SIGSEGV, &a, &before_me);
        dunlin::go({.name = "broken"}, [] { write_to_null(); });
        for_ever();
    });
    return 0;
}

// It mends the fault, and the goroutine goes on.
int handler_that_mends() {
    wanted_address = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    install(SIGSEGV, 0, [](int, siginfo_t* info, void*) {
        calls.fetch_add(1);
        if (info->si_addr == wanted_address) mprotect(wanted_address, 4096, PROT_READ | PROT_WRITE);
    });
    dunlin::run([] {
        dunlin::spawn([] { *static_cast<volatile char*>(wanted_address) = 1; }).get();
        std::printf("%d call\n", calls.load());
    });
    return 0;
}

// One call, and then the default.
int reset_handler() {
    install(SIGSEGV, static_cast<int>(SA_RESETHAND), [](int, siginfo_t*, void*) {
        std::printf("once\n");
        std::fflush(stdout);
    });
    return in_goroutine<write_to_null>();
}

// ---- fork -----------------------------------------------------------------------------------------------------------

// Prints how the child ended.
template <class F>
void in_child(F f, pid_t (*make_child)() = fork) {
    const pid_t child = make_child();
    if (child == 0) {
        f();
        std::printf("it went through\n");
        std::fflush(stdout);
        _exit(0);
    }
    int status = 0;
    for (int i = 0; i < 500 && waitpid(child, &status, WNOHANG) == 0; ++i) {
        if (i == 499) {
            kill(child, SIGKILL);
            std::printf("it hung\n");
        }
        usleep(10'000);
    }
    std::printf("signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    std::fflush(stdout);
}

template <class F>
int forked_in_thread(F f) {
    dunlin::run([&] { std::thread([&] { in_child(f); }).join(); });
    return 0;
}

template <class F>
int forked_in_goroutine(F f) {
    dunlin::run([&] { in_child(f); });
    return 0;
}

// The child comes back from there.
template <class F>
int forked_on_thread_stack(F f) {
    dunlin::run([&] { in_child(f, [] { return dunlin::on_thread_stack(fork); }); });
    return 0;
}

void use_go() { dunlin::go([] {}); }
void use_spawn() { dunlin::spawn([] {}).get(); }
void use_run() { dunlin::run([] {}); }
void use_sleep() { dunlin::sleep_for(1ms); }
void use_chan() { dunlin::chan<int>().recv(); }
void use_timer() { dunlin::after(1ms).recv(); }
void use_max_procs() { dunlin::runtime::set_max_procs(3); }
void use_net() { dunlin::net::listen("tcp", "127.0.0.1:0").accept(); }

// A mutex that a goroutine of the parent holds.
int mutex_of_the_parent(bool by_goroutine) {
    static dunlin::mutex m;
    const auto take = [] { m.lock(); };
    dunlin::run([&] {
        dunlin::chan<int> taken;
        dunlin::go([taken] {
            m.lock();
            taken.send(1);
            for_ever();
        });
        taken.recv();
        if (by_goroutine) {
            in_child(take);
        } else {
            std::thread([&] { in_child(take); }).join();
        }
    });
    return 0;
}

int goroutine_returns_in_child() {
    dunlin::run([] {
        dunlin::go({.name = "forker"}, [] {
            if (fork() != 0) return;
        });
        int status = 0;
        while (waitpid(-1, &status, WNOHANG) <= 0) dunlin::sleep_for(1ms);
        std::printf("signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    });
    return 0;
}

// What a child may do: it has its own memory, exec, exit() and whatever does not wait.
int child_that_execs() {
    std::setvbuf(stdout, nullptr, _IONBF, 0);  // what is in a buffer is printed by the child that calls exit(), too
    dunlin::run([] {
        dunlin::chan<int> c(1);
        c.send(1);
        const auto end_of = [](pid_t child) {
            int status = -1;
            waitpid(child, &status, 0);
            std::printf("%d\n", status);
        };
        const pid_t first = fork();
        if (first == 0) {
            c.recv();
            execl("/bin/true", "true", nullptr);
        }
        end_of(first);
        const pid_t second = fork();
        if (second == 0) std::exit(0);
        end_of(second);
        std::printf("%d\n", std::system("true"));
        FILE* const p = popen("echo piped", "r");
        char line[20] = "";
        if (std::fgets(line, sizeof line, p) == nullptr) std::abort();
        std::printf("%d %s", pclose(p), line);
        const pid_t third = vfork();
        if (third == 0) _exit(0);
        end_of(third);
        std::printf("%d\n", dunlin::process({"/bin/true"}).wait().code);
    });
    return 0;
}

// One thread forks again and again while another makes the first call of all. A child has the runtime to itself, or is
// told that it is its parent's; the lock of the start, which it may have inherited, has no owner there.
int forks_while_the_runtime_starts() {
    std::atomic<bool> begins{false};
    std::vector<pid_t> children;
    std::thread forker([&] {
        while (!begins) {}
        for (int i = 0; i < 40; ++i) {
            const pid_t child = fork();
            if (child == 0) {
                alarm(5);
                dunlin::go([] {});
                _exit(0);
            }
            children.push_back(child);
        }
    });
    begins = true;
    dunlin::go([] {});
    forker.join();
    int hung = 0;
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    }
    std::printf("%d hung\n", hung);
    return 0;
}

// The thread that writes the trace is the parent's.
int child_that_exits_beside_a_trace() {
    dunlin::run([] {
        dunlin::trace::start("/dev/null");
        const pid_t child = fork();
        if (child == 0) std::exit(0);
        int status = -1;
        waitpid(child, &status, 0);
        std::printf("%d\n", status);
        dunlin::trace::stop();
    });
    return 0;
}

constexpr support::scenario all[] = {
    {"forks_while_the_runtime_starts", forks_while_the_runtime_starts},
    {"write_to_null", in_goroutine<write_to_null>},
    {"write_to_null_in_main_goroutine", in_main_goroutine<write_to_null>},
    {"write_to_null_in_thread", in_thread<write_to_null>},
    {"write_to_constant", in_goroutine<write_to_constant>},
    {"divide_by_zero", in_goroutine<divide_by_zero>},
    {"no_instruction", in_goroutine<no_instruction>},
    {"read_behind_the_end", in_goroutine<read_behind_the_end>},
    {"throw_through_noexcept", in_goroutine<throw_through_noexcept>},
    {"abort", in_goroutine<call_abort>},
    {"abort_in_thread", in_thread<call_abort>},
    {"write_to_null_on_thread_stack", in_goroutine<write_to_null_on_thread_stack>},
    {"abort_on_thread_stack", in_goroutine<abort_on_thread_stack>},
    {"terminate", in_goroutine<std::terminate>},
    {"call_null", in_goroutine<call_null>},
    {"call_pure", in_goroutine<call_pure>},
    {"ruined_stack", in_goroutine<fault_with_a_ruined_stack>},
    {"four_at_once", four_at_once},
    {"raise", in_goroutine<raise_segv>},
    {"raise_in_thread", in_thread<raise_segv>},
    {"kill_self", in_goroutine<kill_self>},
    {"killed_from_outside", killed_from_outside},
    {"ignored_when_raised", ignored_when_raised},
    {"ignored_when_killed", ignored_when_killed},
    {"ignored_fault", ignored_fault},
    {"handler_before", handler_before},
    {"handler_before_on_signal_stack", handler_before_on_signal_stack},
    {"handler_that_outlasts_the_run_1", [] { return handler_that_outlasts_the_run(1); }},
    {"handler_that_outlasts_the_run_2", [] { return handler_that_outlasts_the_run(2); }},
    {"handler_before_for_abort", handler_before_for_abort},
    {"plain_handler_before", plain_handler_before},
    {"handler_after", handler_after},
    {"handler_after_that_passes_on", handler_after_that_passes_on},
    {"handler_that_mends", handler_that_mends},
    {"reset_handler", reset_handler},
    {"go_in_child_of_thread", [] { return forked_in_thread(use_go); }},
    {"go_in_child_of_goroutine", [] { return forked_in_goroutine(use_go); }},
    {"go_in_child_of_thread_stack", [] { return forked_on_thread_stack(use_go); }},
    {"spawn_in_child_of_thread", [] { return forked_in_thread(use_spawn); }},
    {"spawn_in_child_of_goroutine", [] { return forked_in_goroutine(use_spawn); }},
    {"run_in_child_of_thread", [] { return forked_in_thread(use_run); }},
    {"run_in_child_of_goroutine", [] { return forked_in_goroutine(use_run); }},
    {"sleep_in_child_of_thread_stack", [] { return forked_on_thread_stack(use_sleep); }},
    {"sleep_in_child_of_thread", [] { return forked_in_thread(use_sleep); }},
    {"sleep_in_child_of_goroutine", [] { return forked_in_goroutine(use_sleep); }},
    {"chan_in_child_of_thread", [] { return forked_in_thread(use_chan); }},
    {"chan_in_child_of_goroutine", [] { return forked_in_goroutine(use_chan); }},
    {"timer_in_child_of_thread", [] { return forked_in_thread(use_timer); }},
    {"timer_in_child_of_goroutine", [] { return forked_in_goroutine(use_timer); }},
    {"max_procs_in_child_of_thread", [] { return forked_in_thread(use_max_procs); }},
    {"max_procs_in_child_of_goroutine", [] { return forked_in_goroutine(use_max_procs); }},
    {"net_in_child_of_thread", [] { return forked_in_thread(use_net); }},
    {"net_in_child_of_goroutine", [] { return forked_in_goroutine(use_net); }},
    {"mutex_in_child_of_thread", [] { return mutex_of_the_parent(false); }},
    {"mutex_in_child_of_goroutine", [] { return mutex_of_the_parent(true); }},
    {"goroutine_returns_in_child", goroutine_returns_in_child},
    {"child_that_execs", child_that_execs},
    {"child_that_exits_beside_a_trace", child_that_exits_beside_a_trace},
};

}  // namespace

int main(int argc, char** argv) { return support::choose(argc, argv, all); }
