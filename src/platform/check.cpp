#include "platform/check.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "platform/simulated.h"

namespace dunlin::inline v0_1::platform {

void end_process(int status) noexcept {
    if (simulation* s = simulation_here()) s->failed("the process is ended");
    // A thread that will never run again may hold stdout's lock; losing its text is better than hanging.
    if (ftrylockfile(stdout) == 0) {
        fflush_unlocked(stdout);
        funlockfile(stdout);
    }
    _exit(status);
}

void check_failed(const char* what, const char* file, int line) noexcept {
    if (simulation* s = simulation_here()) s->failed(what);
    {
        text_writer out(STDERR_FILENO);
        out << "dunlin: internal error: " << what << " (" << file << ':' << line << ")\n"
            << "    this is a bug in dunlin or memory was overwritten; a core file or a sanitizer build shows which\n";
    }
    std::abort();
}

void fatal(std::string_view what) noexcept {
    if (simulation* s = simulation_here()) s->failed(what);
    {
        text_writer out(STDERR_FILENO);
        out << "fatal: " << what << '\n';
    }
    std::abort();
}

}  // namespace dunlin::platform
