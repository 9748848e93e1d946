#include "explorer/forked.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/syscall.h"

namespace dunlin::inline v0_1::explorer {

namespace {

// What a child reports, in memory that it shares with its parent. Pages that neither touches take no memory.
class letter {
public:
    letter() {
        void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) throw std::runtime_error("no memory for what a simulated execution says");
        begin_ = static_cast<std::byte*>(p);
    }
    ~letter() { munmap(begin_, bytes); }
    letter(const letter&) = delete;
    letter& operator=(const letter&) = delete;

    void rewind() noexcept { at_ = 0; }

    template <class T>
    void put(const T& value) noexcept {
        put(&value, sizeof value);
    }
    void put(const std::string& text) noexcept {
        put(text.size());
        put(text.data(), text.size());
    }
    void put(const std::vector<choice>& choices) noexcept {
        put(choices.size());
        put(choices.data(), choices.size() * sizeof(choice));
    }

    template <class T>
    void get(T& value) noexcept {
        get(&value, sizeof value);
    }
    void get(std::string& text) {
        std::size_t size = 0;
        get(size);
        text.resize(size);
        get(text.data(), size);
    }
    void get(std::vector<choice>& choices) {
        std::size_t size = 0;
        get(size);
        choices.resize(size);
        get(choices.data(), size * sizeof(choice));
    }

private:
    static constexpr std::size_t bytes = std::size_t{256} << 20;

    void put(const void* from, std::size_t size) noexcept {
        if (size != 0) std::memcpy(begin_ + at_, from, size);
        at_ += size;
    }
    void get(void* to, std::size_t size) noexcept {
        if (size != 0) std::memcpy(to, begin_ + at_, size);
        at_ += size;
    }

    std::byte* begin_ = nullptr;
    std::size_t at_ = 0;
};

// Forks; returns 0 in the child.
pid_t divide() {
    const long child = platform::raw_syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child < 0)
        throw std::runtime_error(
            std::string("no process for a simulated execution: ") + std::strerror(static_cast<int>(-child)));
    return static_cast<pid_t>(child);
}

// How the child ended; empty: without a fault.
std::string end_of(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) throw std::runtime_error("a simulated execution is lost");
    }
    if (WIFSIGNALED(status))
        return "the process ends by signal " + std::to_string(WTERMSIG(status)) + ", " + strsignal(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) return "the process ends with " + std::to_string(WEXITSTATUS(status));
    return {};
}

// A fault ends the child at once; a wait that no virtual thread can end is ended by the alarm.
void as_any_process(bool quiet) noexcept {
    constexpr unsigned patience_s = 100;
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) ::signal(signal, SIG_DFL);
    alarm(patience_s);
    if (!quiet) return;
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
}

letter& of_executions() {
    static letter l;
    return l;
}

}  // namespace

forked_explorer::forked_explorer(const options& o, const case_function& build)
    : world_({.model = o.model, .max_steps = o.max_steps, .times_out = o.times_out, .whole = true,
          .more_threads = o.more_threads, .signals = o.signals, .punctual = o.punctual}) {
    of_executions();
    build(parts_);
    const world::outcome outcome =
        world_.prepare(std::move(parts_.threads_), std::move(parts_.names_), std::move(parts_.when_quiet_));
    if (!outcome.failure.empty()) throw std::runtime_error("while the case was prepared: " + outcome.failure);
}

world::outcome forked_explorer::once(strategy& s, std::string* story) {
    letter& l = of_executions();
    l.rewind();
    world::outcome o;
    const pid_t child = divide();
    if (child == 0) {
        as_any_process(story == nullptr);
        o = world_.go_on(s, story);
        if (o.failure.empty()) check_at_end(parts_.ends_, o, story);
        l.put(o.failure);
        l.put(o.steps);
        l.put(o.hash);
        l.put(o.gave_up);
        // Of an execution that holds, only replay() needs the choices.
        l.put(o.failure.empty() && story == nullptr ? std::vector<choice>() : o.choices);
        l.put(story != nullptr ? *story : std::string());
        _exit(0);
    }
    if (const std::string end = end_of(child); !end.empty()) {
        o.failure = end;
        return o;
    }
    std::string told;
    l.get(o.failure);
    l.get(o.steps);
    l.get(o.hash);
    l.get(o.gave_up);
    l.get(o.choices);
    l.get(told);
    if (story != nullptr) *story = std::move(told);
    s.ended(o.steps);
    return o;
}

result in_process_of_its_own(const std::function<result()>& f) {
    letter l;
    const pid_t child = divide();
    if (child == 0) {
        result r;
        try {
            r = f();
        } catch (const std::exception& e) {
            r.failure = e.what();
        }
        l.put(r.failure);
        l.put(r.story);
        l.put(r.choices);
        l.put(r.executions);
        l.put(r.complete);
        l.put(r.given_up);
        l.put(r.steps);
        l.put(r.hash);
        _exit(0);
    }
    result r;
    if (r.failure = end_of(child); !r.failure.empty()) return r;
    l.get(r.failure);
    l.get(r.story);
    l.get(r.choices);
    l.get(r.executions);
    l.get(r.complete);
    l.get(r.given_up);
    l.get(r.steps);
    l.get(r.hash);
    return r;
}

}  // namespace dunlin::explorer
