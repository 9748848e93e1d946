#include "platform/thread.h"

#include <dunlin/config.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/futex.h"
#include "platform/memory.h"
#include "platform/simulated.h"
#include "platform/syscall.h"
#include "platform/text.h"

namespace dunlin::inline v0_1::platform {

namespace {

// The scheduler needs little, but on_thread_stack() promises as much as any thread has. It is less if `many` such
// stacks would not fit into a quarter of the addresses, and under a sanitizer, which writes an eighth of the size when
// the thread begins.
std::size_t worker_stack_bytes() noexcept {
#if DUNLIN_ADDRESS_SANITIZER || DUNLIN_THREAD_SANITIZER
    return 2 << 20;
#else
    constexpr std::size_t least = 256 << 10;
    constexpr std::size_t many = 16384;
    static const stack_space space = space_for_stacks();
    return std::max(least, std::min(space.of_a_thread, space.addresses / 4 / many));
#endif
}

sigset_t initial_mask;
bool mask_known = false;

// ---- the end of a thread: thread_local objects are destroyed first, then the values of keys, in rounds as long as a
// destructor sets one anew. A key that does so in each round but the last comes after the program's.

atomic<std::uint32_t> ending_threads{0};

#if DUNLIN_THREAD_SANITIZER
constexpr std::uintptr_t rounds_of_keys = PTHREAD_DESTRUCTOR_ITERATIONS - 1;  // the tool's own key takes the last one
#else
constexpr std::uintptr_t rounds_of_keys = PTHREAD_DESTRUCTOR_ITERATIONS;
#endif

pthread_key_t end_key() noexcept;

void end_round(void* raw) noexcept {
    const std::uintptr_t round = reinterpret_cast<std::uintptr_t>(raw);
    if (round < rounds_of_keys && pthread_setspecific(end_key(), reinterpret_cast<void*>(round + 1)) == 0) return;
    ending_threads.fetch_sub(1, std::memory_order_release);  // pairs with the acquire in ending_thread_count()
}

constexpr pthread_key_t no_key = ~pthread_key_t{0};

pthread_key_t end_key() noexcept {
    static const pthread_key_t key = [] {
        pthread_key_t k;
        return pthread_key_create(&k, end_round) == 0 ? k : no_key;
    }();
    return key;
}

}  // namespace

void detail::begin_thread(const thread_kind& kind) noexcept {
    if (simulation* s = simulation_here()) return s->name_thread(kind.name);
    raw_syscall(SYS_prctl, PR_SET_NAME, syscall_arg(kind.name));
    sigset_t all;  // as start_thread() has left it
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, kind.runs_the_program && mask_known ? &initial_mask : &all, nullptr);
}

int detail::start_thread(void* (*entry)(void*), void* argument) noexcept {
    if (simulation* s = simulation_here()) return s->start_thread(entry, argument);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, worker_stack_bytes());
    // A signal handler of the program must not run on a thread that is only half made.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int error = pthread_create(&thread, &attributes, entry, argument);
    if (error == EINVAL) {
        // glibc takes the program's thread_local objects out of the stack, and they leave too little of ours.
        pthread_attr_t usual;
        if (pthread_getattr_default_np(&usual) == 0) {
            std::size_t bytes = 0;
            if (pthread_attr_getstacksize(&usual, &bytes) == 0) pthread_attr_setstacksize(&attributes, bytes);
            pthread_attr_destroy(&usual);
            error = pthread_create(&thread, &attributes, entry, argument);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    return error;
}

void begin_thread_end() noexcept {
    if (simulation_here() != nullptr) return;
    const pthread_key_t key = end_key();
    if (key == no_key || pthread_getspecific(key) != nullptr) return;
    // Relaxed: the caller takes the scheduler lock next, and so does the thread that calls exit(), before it waits.
    ending_threads.fetch_add(1, std::memory_order_relaxed);
    if (pthread_setspecific(key, reinterpret_cast<void*>(std::uintptr_t{1})) != 0) {
        end_round(reinterpret_cast<void*>(rounds_of_keys));
    }
}

void prepare_thread_ends() noexcept { end_key(); }

std::uint32_t ending_thread_count() noexcept { return ending_threads.load(std::memory_order_acquire); }

void remember_signal_mask(std::span<const int> unblocked) noexcept {
    pthread_sigmask(SIG_SETMASK, nullptr, &initial_mask);
    for (const int signal : unblocked) sigdelset(&initial_mask, signal);
    mask_known = true;
}

bool blocks_more_than_usual(const sigset_t& mask) noexcept {
    // The kernel's part: 64 signals.
    std::uint64_t now, usual;
    std::memcpy(&now, &mask, sizeof now);
    std::memcpy(&usual, &initial_mask, sizeof usual);
    return (now & ~usual) != 0;
}

pid_t thread_id() noexcept {
    if (simulation* s = simulation_here()) return s->thread_id();
    return static_cast<pid_t>(raw_syscall(SYS_gettid));
}

void give_cpu_away() noexcept {
    if (simulation* s = simulation_here()) return s->pause();
    raw_syscall(SYS_sched_yield);
}

bool send_signal(pid_t tid, int signal) noexcept {
    if (simulation* s = simulation_here()) {
        s->send_signal(tid, signal);
        return true;
    }
    return raw_syscall(SYS_tgkill, raw_syscall(SYS_getpid), tid, signal) == 0;
}

namespace {

char mark_of_requests;
// rt_tgsigqueueinfo is refused. Relaxed: set before the first plain signal is sent, and read in its handler, so the
// kernel's delivery orders them.
platform::atomic<bool> requests_are_plain{false};

}  // namespace

siginfo_t request_info(int signal) noexcept {
    siginfo_t info{};
    info.si_signo = signal;
    info.si_code = SI_QUEUE;
    info.si_value.sival_ptr = &mark_of_requests;
    return info;
}

bool send_request(pid_t tid, int signal) noexcept {
    if (simulation_here() != nullptr || requests_are_plain.load(std::memory_order_relaxed)) {
        return send_signal(tid, signal);
    }
    siginfo_t info = request_info(signal);
    const long result =
        raw_syscall(SYS_rt_tgsigqueueinfo, raw_syscall(SYS_getpid), tid, signal, syscall_arg(&info));
    if (result == 0 || result == -ESRCH) return result == 0;
    requests_are_plain.store(true, std::memory_order_relaxed);
    return send_signal(tid, signal);
}

signal_source source_of(const siginfo_t& info) noexcept {
    if (info.si_code == SI_QUEUE && info.si_value.sival_ptr == &mark_of_requests) return signal_source::request;
    const bool plain = info.si_code == SI_TKILL && requests_are_plain.load(std::memory_order_relaxed);
    const bool without_info = info.si_code == SI_USER && info.si_pid == 0;
    return plain || without_info ? signal_source::unknown : signal_source::program;
}

std::uintptr_t new_thread_mark() noexcept {
    static atomic<std::uintptr_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

bool is_main_thread() noexcept { return raw_syscall(SYS_gettid) == raw_syscall(SYS_getpid); }

namespace {

// Reads the start of a file under /proc without libc's locks or errno. Returns the length; the text is null-terminated.
std::size_t read_proc(const char* path, char* text, std::size_t size) noexcept {
    text[0] = 0;
    const long fd = raw_syscall(SYS_openat, AT_FDCWD, syscall_arg(path), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const long n = raw_syscall(SYS_read, fd, syscall_arg(text), static_cast<long>(size - 1));
    raw_syscall(SYS_close, fd);
    if (n <= 0) return 0;
    text[n] = 0;
    return static_cast<std::size_t>(n);
}

}  // namespace

unsigned count_threads() noexcept {
    if (simulation* s = simulation_here()) return s->count_threads();
    char text[4096];
    read_proc("/proc/self/status", text, sizeof text);
    const char* line = std::strstr(text, "\nThreads:");
    return line ? static_cast<unsigned>(std::strtoul(line + 9, nullptr, 10)) : 0;
}

namespace {

// "running", or the number of the call, its six arguments, the stack pointer and the address of the instruction; "-1",
// and the last two, in a page fault.
std::size_t read_current_call(pid_t tid, char* text, std::size_t size) noexcept {
    text_writer path(-1);
    path << "/proc/self/task/" << static_cast<int>(tid) << "/syscall" << std::string_view("\0", 1);
    return read_proc(path.view().data(), text, size);
}

// Whether the thread's state is R; empty: not known. Unlike the call, the state may be read by a process that has given
// its privileges up (setuid()), whose own files under /proc belong to root.
std::optional<bool> is_in_state_running(pid_t tid) noexcept {
    text_writer path(-1);
    path << "/proc/self/task/" << static_cast<int>(tid) << "/stat" << std::string_view("\0", 1);
    char text[64];  // the number, the name (15 bytes at most) in parentheses, the state
    if (read_proc(path.view().data(), text, sizeof text) == 0) return std::nullopt;
    const char* end_of_name = std::strrchr(text, ')');
    if (end_of_name == nullptr) return std::nullopt;
    return std::strncmp(end_of_name, ") R", 3) == 0;
}

// Whether the thread has had a CPU in the next 50 us. Without a file, for a process that has no descriptor left.
bool uses_a_cpu(pid_t tid) noexcept {
    const std::int64_t before = thread_cpu_ns(tid);
    const timespec pause{.tv_sec = 0, .tv_nsec = 50'000};
    raw_syscall(SYS_nanosleep, syscall_arg(&pause), 0);
    return thread_cpu_ns(tid) != before;
}

}  // namespace

bool thread_is_running(pid_t tid) noexcept {
    if (simulation* s = simulation_here()) return s->look_at(tid).runs;
    char text[64];
    if (read_current_call(tid, text, sizeof text) != 0) return std::strncmp(text, "running", 7) == 0;
    const std::optional<bool> running = is_in_state_running(tid);
    return running ? *running : uses_a_cpu(tid);
}

static const char* name_of_call(long number) noexcept {
    switch (number) {
    case SYS_read: return "read";
    case SYS_write: return "write";
    case SYS_readv: return "readv";
    case SYS_writev: return "writev";
    case SYS_pread64: return "pread";
    case SYS_pwrite64: return "pwrite";
    case SYS_recvfrom: return "recvfrom";
    case SYS_recvmsg: return "recvmsg";
    case SYS_sendto: return "sendto";
    case SYS_sendmsg: return "sendmsg";
    case SYS_accept: return "accept";
    case SYS_accept4: return "accept4";
    case SYS_connect: return "connect";
    case SYS_ppoll: return "ppoll";
    case SYS_pselect6: return "pselect";
    case SYS_epoll_pwait: return "epoll_pwait";
#if defined(__x86_64__)
    case SYS_poll: return "poll";
    case SYS_select: return "select";
    case SYS_epoll_wait: return "epoll_wait";
#endif
    case SYS_futex: return "futex";
    case SYS_nanosleep: return "nanosleep";
    case SYS_clock_nanosleep: return "clock_nanosleep";
    case SYS_wait4: return "wait4";
    case SYS_waitid: return "waitid";
    case SYS_openat: return "openat";
    case SYS_flock: return "flock";
    case SYS_fsync: return "fsync";
    case SYS_fdatasync: return "fdatasync";
    default: return nullptr;
    }
}

sleeping_call thread_sleeps_in(pid_t tid) noexcept {
    if (simulation_here() != nullptr) return {};
    char text[256];
    if (read_current_call(tid, text, sizeof text) == 0 || std::strncmp(text, "running", 7) == 0) return {};
    char* last = std::strrchr(text, ' ');
    if (last == nullptr) return {};
    const auto* at = reinterpret_cast<const void*>(std::strtoull(last, nullptr, 16));
    *last = 0;
    const char* before = std::strrchr(text, ' ');
    auto* sp = before != nullptr ? reinterpret_cast<void*>(std::strtoull(before, nullptr, 16)) : nullptr;
    return {at, name_of_call(std::strtol(text, nullptr, 10)), sp};
}

bool thread_waits_for_time(pid_t tid) noexcept {
    if (simulation_here() != nullptr) return false;
    char text[64];
    if (read_current_call(tid, text, sizeof text) == 0 || std::strncmp(text, "running", 7) == 0) return false;
    const long number = std::strtol(text, nullptr, 10);
    return number == SYS_nanosleep || number == SYS_clock_nanosleep;
}

thread_ids::thread_ids() noexcept {
    if (simulation_here() != nullptr) return;
    fd_ = static_cast<int>(raw_syscall(
        SYS_openat, AT_FDCWD, syscall_arg("/proc/self/task"), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

thread_ids::~thread_ids() {
    if (fd_ >= 0) raw_syscall(SYS_close, fd_);
}

pid_t thread_ids::next() noexcept {
    // The kernel's linux_dirent64: two numbers of 64 bits, the size of the entry (16 bits), its type, its name.
    constexpr std::size_t size_at = 16, name_at = 19;
    while (fd_ >= 0) {
        if (at_ >= size_) {
            const long n = raw_syscall(SYS_getdents64, fd_, syscall_arg(entries_.data()), entries_.size());
            if (n <= 0) return 0;
            at_ = 0;
            size_ = static_cast<std::size_t>(n);
        }
        std::uint16_t size;
        std::memcpy(&size, &entries_[at_ + size_at], sizeof size);
        const long id = std::strtol(&entries_[at_ + name_at], nullptr, 10);  // 0: "." or ".."
        at_ += size;
        if (id != 0) return static_cast<pid_t>(id);
    }
    return 0;
}

#if defined(__GLIBC__)
namespace {

// A wait in libc or libstdc++ without a deadline, whose word says what is waited for, but not which thread holds it. It
// is recognised by the arguments of the system call:
//   a static    only __cxa_guard_acquire() waits for a word of this value with a futex that is not private to the
//               process
//   call_once   pthread_once() waits for a word that says "in progress" in this process, in libc, and not through its
//               syscall() as std::atomic's wait() does. (pthread_barrier_wait() waits for a count, which is never 1;
//               only in the child of a fork might the two be the same.)
//   readers     a pthread_rwlock_t counts its readers: the first writer waits for them at __wrphase_futex, other
//               writers at __writers_futex, and readers that let writers pass at __readers
struct futex_call {
    unsigned operation, value;
    std::uintptr_t code;  // the address behind the call
};

// The memory around the word slept for, as far as it could be read; else zeros.
class words_around {
public:
    static constexpr int before = 3, behind = 7;
    unsigned word[before + behind] = {};

    unsigned operator[](int n) const noexcept { return word[before + n]; }
    pid_t owner(int n) const noexcept { return static_cast<pid_t>((*this)[n]); }

    // False: the word itself cannot be read. By now there may be another object here, or none: so the kernel reads the
    // memory, and what lies around may be on a page that is not mapped: the word comes first.
    bool read(std::uintptr_t address) noexcept {
        constexpr std::size_t size = sizeof(unsigned);
        const auto at = [](std::uintptr_t a) { return reinterpret_cast<void*>(a); };
        const iovec here[] = {{word + before, size}, {word + before + 1, (behind - 1) * size}, {word, before * size}};
        const iovec there[] = {{at(address), size}, {at(address + size), (behind - 1) * size},
            {at(address - before * size), before * size}};
        const long n = raw_syscall(
            SYS_process_vm_readv, raw_syscall(SYS_getpid), syscall_arg(here), 3, syscall_arg(there), 3, 0);
        return n >= static_cast<long>(size);
    }

    // A pthread_rwlock_t begins at this word: readers hold it, and a writer is the next.
    bool is_read_lock_that_a_writer_wants(int first) const noexcept {
        constexpr unsigned write_phase = 1, write_locked = 2, reader = 8, most_readers = 1 << 20;
        constexpr int writer = 6;
        const unsigned readers = (*this)[first];
        return (readers & (write_phase | write_locked)) == write_locked && readers / reader != 0 &&
            readers / reader < most_readers && (*this)[first + writer] == 0;
    }
};

// The word of a pthread_once_t whose function is under way: one more than four times the number of forks before.
unsigned once_in_progress() noexcept {
    static pthread_once_t word = PTHREAD_ONCE_INIT;
    static unsigned value = 0;
    pthread_once(&word, [] { value = static_cast<unsigned>(word); });
    return value;
}

const char* what_is_unnamed(const futex_call& call, const words_around& around) noexcept {
    constexpr unsigned static_in_progress = 0x100, static_waited_for = 0x10000;
    constexpr std::uintptr_t syscall_bytes = 64;  // of libc's function, at most
    const unsigned word = around[0];
    if (word != call.value) return nullptr;
    if (call.operation == FUTEX_WAIT && word == (static_in_progress | static_waited_for)) {
        return "initialises the static variable whose guard is";
    }
    const bool in_syscall = call.code - reinterpret_cast<std::uintptr_t>(&::syscall) < syscall_bytes;
    if (call.operation == FUTEX_WAIT_PRIVATE && word == once_in_progress() && !in_syscall) {
        return "is inside std::call_once() with the flag";
    }
    if ((call.operation & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET) return nullptr;
    constexpr unsigned wanted = 2, wanted_and_taken = 3, reader_waits = 4;
    const bool readers_hold = word == wanted ? around.is_read_lock_that_a_writer_wants(-2)
        : word == wanted_and_taken           ? around.is_read_lock_that_a_writer_wants(-3)
                                   : (word & reader_waits) != 0 && around.is_read_lock_that_a_writer_wants(0);
    return readers_hold ? "reads under the read-write lock with the word" : nullptr;
}

}  // namespace
#endif

lock_wait lock_waited_for(pid_t tid) noexcept {
    lock_wait wait;
    if (simulation_here() != nullptr) return wait;
#if defined(__GLIBC__)
    char text[256];
    if (read_current_call(tid, text, sizeof text) == 0 || std::strncmp(text, "running", 7) == 0) return wait;
    char* after = nullptr;
    if (std::strtol(text, &after, 10) != SYS_futex) return wait;
    unsigned long long argument[8] = {};  // six, the stack pointer, the instruction
    for (unsigned long long& each : argument) each = std::strtoull(after, &after, 16);
    // The word slept for is the first of a pthread_mutex_t, whose third word is its owner; or the third
    // (__wrphase_futex) or fourth (__writers_futex) of a pthread_rwlock_t, whose seventh word is its writer: the fifth
    // or fourth from here.
    const auto address = static_cast<std::uintptr_t>(argument[0]);
    words_around around;
    if (!around.read(address) || around[0] == 0) return wait;
    wait.lock = reinterpret_cast<const void*>(address);
    wait.owners = {around.owner(2), around.owner(3), around.owner(4)};
    wait.code = static_cast<std::uintptr_t>(argument[7]);
    const futex_call call{static_cast<unsigned>(argument[1]), static_cast<unsigned>(argument[2]), wait.code};
    const bool for_ever = argument[3] == 0;
    if (for_ever) wait.unnamed = what_is_unnamed(call, around);
#else
    static_cast<void>(tid);
#endif
    return wait;
}

namespace {

// The 39th word of /proc/self/task/TID/stat, whose second word is in brackets and may contain anything; -1: not known.
int last_cpu(pid_t tid) noexcept {
    text_writer path(-1);
    path << "/proc/self/task/" << static_cast<int>(tid) << "/stat" << std::string_view("\0", 1);
    char text[1024];
    read_proc(path.view().data(), text, sizeof text);
    const char* at = std::strrchr(text, ')');
    for (int word = 2; at != nullptr && word < 39; ++word) at = std::strchr(at + 1, ' ');
    return at != nullptr ? static_cast<int>(std::strtol(at, nullptr, 10)) : -1;
}

// How long the thread (0: this one) may run before another that waits for the CPU comes first; 0: the kernel's default.
// Asking first costs a tenth of setting.
void set_slice_ns(pid_t tid, std::uint64_t ns) noexcept {
    if (simulation_here() != nullptr) return;
    // linux/sched/types.h, which cannot be included beside <sched.h>.
    struct {
        std::uint32_t size, policy;
        std::uint64_t flags;
        std::int32_t nice;
        std::uint32_t priority;
        std::uint64_t runtime, deadline, period;
    } attributes{};
    constexpr std::uint32_t other = 0;
    if (raw_syscall(SYS_sched_getattr, tid, syscall_arg(&attributes), sizeof attributes, 0) != 0 ||
        attributes.policy != other) {
        return;
    }
    if (attributes.runtime == ns) return;
    attributes.runtime = ns;
    raw_syscall(SYS_sched_setattr, tid, syscall_arg(&attributes), 0);
}

}  // namespace

void give_right_of_way(pid_t first, pid_t second) noexcept {
    if (simulation_here() != nullptr) return;
    // Undoes use_leftover_time(), if that is in force. Without privileges this is forbidden, and the thread stays as it
    // is.
    const sched_param none{};
    if (raw_syscall(SYS_sched_getscheduler, second) == SCHED_IDLE) {
        raw_syscall(SYS_sched_setscheduler, second, SCHED_OTHER, syscall_arg(&none));
    }
    // From Linux 6.12 on, a thread that wakes comes before one with longer slices.
    set_slice_ns(second, 100'000'000);
    place_beside(first, second);
}

void place_beside(pid_t first, pid_t second) noexcept {
    if (simulation_here() != nullptr) return;
    constexpr int word_bits = 8 * sizeof(unsigned long), words = 128;  // 8192 CPUs
    const int cpu = last_cpu(first);
    if (cpu < 0 || cpu >= words * word_bits) return;
    unsigned long one[words] = {};
    one[cpu / word_bits] = 1ul << (cpu % word_bits);
    raw_syscall(SYS_sched_setaffinity, second, sizeof one, syscall_arg(one));
}

void use_leftover_time(pid_t tid) noexcept {
    if (simulation_here() != nullptr) return;
    const sched_param none{};
    raw_syscall(SYS_sched_setscheduler, tid, SCHED_IDLE, syscall_arg(&none));
}

std::int64_t thread_cpu_ns(pid_t tid) noexcept {
    if (simulation* s = simulation_here()) return s->look_at(tid).cpu_ns;
    // The clock of a thread: CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED below the complement of its number
    // (linux/posix-timers.h).
    timespec t{};
    const long clock = static_cast<long>((~static_cast<unsigned>(tid) << 3) | 6u);
    if (raw_syscall(SYS_clock_gettime, static_cast<int>(clock), syscall_arg(&t)) != 0) return 0;
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

std::uint64_t thread_sleeps(pid_t tid) noexcept {
    if (simulation* s = simulation_here()) return s->look_at(tid).sleeps;
    text_writer path(-1);
    path << "/proc/self/task/" << static_cast<int>(tid) << "/status" << std::string_view("\0", 1);
    char text[4096];
    read_proc(path.view().data(), text, sizeof text);
    // No descriptor is left, or there is no /proc: the same each time, and unlike any number that was read.
    constexpr std::uint64_t unknown = std::uint64_t{1} << 63;
    const char* line = std::strstr(text, "\nvoluntary_ctxt_switches:");
    return line != nullptr ? std::strtoull(line + 25, nullptr, 10) : unknown;
}

thread_use this_thread_use() noexcept {
    if (simulation* s = simulation_here()) {
        const simulation::thread_look look = s->look_at(s->thread_id());
        return {look.cpu_ns, look.sleeps};
    }
    timespec t{};
    rusage used{};
    raw_syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, syscall_arg(&t));
    raw_syscall(SYS_getrusage, RUSAGE_THREAD, syscall_arg(&used));
    return {static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec, static_cast<std::uint64_t>(used.ru_nvcsw)};
}

int current_cpu() noexcept {
    if (simulation* s = simulation_here()) return s->current_cpu();
    return sched_getcpu();
}

void use_exact_timers() noexcept {
    if (simulation_here() == nullptr) raw_syscall(SYS_prctl, PR_SET_TIMERSLACK, 1);
}

void use_short_slices() noexcept { set_slice_ns(0, 100'000); }

ordinary_thread::ordinary_thread(bool ours) noexcept : ours_(ours) {
    if (!ours_) return;
    timer_slack_ns_ = raw_syscall(SYS_prctl, PR_GET_TIMERSLACK);
    raw_syscall(SYS_prctl, PR_SET_TIMERSLACK, 0);
    set_slice_ns(0, 0);
}

ordinary_thread::~ordinary_thread() {
    if (!ours_) return;
    raw_syscall(SYS_prctl, PR_SET_TIMERSLACK, timer_slack_ns_);
    use_short_slices();
}

stack_bounds thread_stack() noexcept {
    pthread_attr_t attributes;
    stack_bounds bounds{nullptr, 0};
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return bounds;
    pthread_attr_getstack(&attributes, &bounds.low, &bounds.size);
    pthread_attr_destroy(&attributes);
    return bounds;
}

signal_stack::signal_stack() noexcept {
    if (simulation_here() != nullptr) return;
    stack_t current;
    // A sanitizer installs one of its own and takes it down itself when the thread ends.
    if (sigaltstack(nullptr, &current) == 0 && !(current.ss_flags & SS_DISABLE)) return;
    // At least room for the kernel's frame with every vector register, and for a report to be written.
    const std::size_t guard = page_size(), bytes = std::max<std::size_t>(64 << 10, worker_stack_bytes() / 4) & -guard;
    void* const memory =
        mmap(nullptr, guard + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return;
    stack_t ours{};
    ours.ss_sp = static_cast<char*>(memory) + guard;
    ours.ss_size = bytes;
    if (mprotect(ours.ss_sp, bytes, PROT_READ | PROT_WRITE) != 0 || sigaltstack(&ours, nullptr) != 0) {
        munmap(memory, guard + bytes);
        return;
    }
    memory_ = memory;
    size_ = guard + bytes;
}

signal_stack::~signal_stack() {
    if (memory_ == nullptr) return;
    stack_t current;
    if (sigaltstack(nullptr, &current) == 0 && current.ss_sp == static_cast<char*>(memory_) + page_size()) {
        stack_t none{};
        none.ss_flags = SS_DISABLE;
        sigaltstack(&none, nullptr);
    }
    munmap(memory_, size_);
}

}  // namespace dunlin::platform
