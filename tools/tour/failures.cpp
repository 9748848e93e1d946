// failures.cpp - part 15: mistakes that end a program say which goroutine made them; mistakes that need not end it are
// exceptions.
#include <filesystem>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <sys/resource.h>
#include <unistd.h>

#include "parts.h"
#include "system.h"

namespace tour {

namespace {

// ---- the ways to die, each in a process of its own ------------------------------------------------------------------

struct death {
    const char* how;
    const char* what;
    const char* name;  // of the goroutine, which the report must mention
    void (*happen)();
};

[[gnu::noinline]] int endless_recursion(int depth) {
    volatile char frame[256] = {};
    frame[depth % 256] = 1;
    return depth < 0 ? 0 : endless_recursion(depth + 1) + frame[depth % 256];
}

void overflow_the_stack() {
    dunlin::go({.name = "deep thought"}, [] { endless_recursion(0); });
    dunlin::sleep_for(std::chrono::seconds(10));
}

void wait_for_each_other() {
    dunlin::wait_group left, right;
    left.add(1);
    right.add(1);
    dunlin::go({.name = "left hand"}, [=]() mutable { right.wait(), left.done(); });
    dunlin::go({.name = "right hand"}, [=]() mutable { left.wait(), right.done(); });
    left.wait();
}

void let_an_exception_escape() {
    dunlin::go({.name = "careless"}, [] { throw std::runtime_error("disk on fire"); });
    dunlin::sleep_for(std::chrono::seconds(10));
}

const death deaths[] = {
    {"overflow", "a goroutine recurses without end", "deep thought", overflow_the_stack},
    {"deadlock", "two goroutines wait for each other, and main for them", "left hand", wait_for_each_other},
    {"exception", "an exception leaves a goroutine that is not waited for", "careless", let_an_exception_escape},
};

std::string own_path() {
    std::error_code failed;
    const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", failed);
    return failed ? "/proc/self/exe" : path.string();
}

// The report without the frames of its stack traces, of which only the number is said.
void show_report(const std::string& report) {
    std::istringstream lines(report);
    int shown = 0, frames = 0;
    for (std::string line; std::getline(lines, line) && shown < 12;) {
        const std::size_t first = line.find_first_not_of(' ');
        if (first == line.npos) continue;
        if (line[first] == '#') {
            ++frames;
            continue;
        }
        say("  %s", dim("| " + line.substr(0, 140)).c_str());
        ++shown;
    }
    say("  %s", dim(text("| (and %d frames of stack traces)", frames)).c_str());
}

void show(const death& d) {
    const outcome o = run_program({own_path(), text("--die=%s", d.how)}, "", listen_to::err);
    say("%s: %s", bold(d.how).c_str(), d.what);
    show_report(o.text);
    claim(
        o.status == 2, "the process ended with status %d (2 is expected) after %s", o.status, readable(o.took).c_str());
    claim(o.text.find(d.name) != o.text.npos, "the report names the goroutine, \"%s\"", d.name);
}

// ---- mistakes that are exceptions -----------------------------------------------------------------------------------

template <class F>
void show_refusal(const char* what, F mistake) {
    std::string words = "nothing was thrown";
    bool refused = false;
    try {
        mistake();
    } catch (const std::invalid_argument& e) {
        words = e.what();
        refused = true;
    }
    claim(refused, "%-31s %s", what, words.c_str());
}

void show_refusals() {
    say("%s", bold("Bad arguments are exceptions, and all goes on:").c_str());
    show_refusal("go() of an empty function:", [] { dunlin::go(std::function<void()>()); });
    show_refusal("a stack of 100 bytes:", [] { dunlin::go({.stack_size = 100}, [] {}); });
    show_refusal("no processor:", [] { dunlin::runtime::set_max_procs(0); });
    auto child = dunlin::spawn([] { return 42; });
    claim(child.get() == 42, "the runtime is none the worse for it");
}

}  // namespace

int die(std::string_view how) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    alarm(20);  // dying takes milliseconds
    for (const death& d : deaths) {
        if (how == d.how) dunlin::run(d.happen);
    }
    return 0;
}

void failures(const options&) {
    explain("Three child processes make a mistake each. This is what they wrote to stderr, without\n"
            "the stack traces.");
    for (const death& d : deaths) show(d);
    dunlin::run(show_refusals);
}

}  // namespace tour
