// may_trace.h - does the system let a process be traced here? Containers may forbid it.
#pragma once

#include <csignal>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

namespace support {

// Asked by tracing a child that does nothing.
inline bool may_trace() {
    const pid_t child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    const bool may = child > 0 && ptrace(PTRACE_SEIZE, child, nullptr, nullptr) == 0;
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
    return may;
}

}  // namespace support
