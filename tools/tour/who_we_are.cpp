// who_we_are.cpp - part 1: the library, the machine, and how the runtime has set itself up on it.
#include <gnu/libc-version.h>

#include "parts.h"
#include "system.h"

namespace tour {

namespace {

const char* meaning(const std::string& guards) {
    if (guards == "madvise") return "an overflow is caught; no guard costs a mapping of the kernel's";
    if (guards == "mprotect") return "an overflow is caught; this kernel wants a mapping for each guard";
    if (guards == "canary") return "an overflow is noticed at the next switch";
    return "an overflow is not noticed";
}

}  // namespace

void who_we_are(const options&) {
    explain("Nothing was configured. The runtime has looked at the machine by itself.");
    dunlin::run([] {
        const dunlin::runtime::runtime_stats s = dunlin::runtime::stats();
        say("dunlin         %d.%d.%d", DUNLIN_VERSION_MAJOR, DUNLIN_VERSION_MINOR, DUNLIN_VERSION_PATCH);
        say("compiler       %s", __VERSION__);
        say("kernel         %s, glibc %s", kernel().c_str(), gnu_get_libc_version());
        say("CPUs           %u online", processors_online());
        say("max_procs      %u: so many goroutines execute at the same time (DUNLIN_MAXPROCS sets it)", s.max_procs);
        say("stack guards   %s: %s", s.stack_guards.c_str(), meaning(s.stack_guards));
        say("this is        goroutine %llu, one of %zu, on one of %u threads",
            static_cast<unsigned long long>(dunlin::this_goroutine::id()), s.goroutines, s.threads);
        claim(s.max_procs >= 1 && s.max_procs == dunlin::runtime::max_procs(),
            "there is a processor for every CPU that we may use: %u", s.max_procs);
        claim(s.stack_guards == "madvise" || s.stack_guards == "mprotect",
            "stacks have guards that catch an overflow (%s)", s.stack_guards.c_str());
        claim(dunlin::this_goroutine::id() == 1, "what run() runs is goroutine 1, the main goroutine");
    });
}

}  // namespace tour
