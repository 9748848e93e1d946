// signal_of_store.h - whether memory may be written to, asked by a process that dies of it.
#pragma once

#include <csignal>
#include <cstddef>
#include <sys/wait.h>
#include <unistd.h>

namespace support {

// The signal that a store to `address` raises, in a child; 0: none.
inline int signal_of_store(std::byte* address) {
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *const_cast<volatile std::byte*>(address) = std::byte{1};
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace support
