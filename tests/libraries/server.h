// server.h - a program of the distribution's that a program of tests/libraries starts for itself: as an unprivileged
// user, since some refuse to be root's, and with a log in a folder that goes away.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "libraries/library.h"

namespace libraries {

/// The user of these programs, which owns the folder from here on: `wanted`, else the user "nobody"; null where we are
/// no root.
inline const passwd* owner_of(const folder& f, const char* wanted) {
    if (getuid() != 0) return nullptr;
    const passwd* user = getpwnam(wanted);
    if (!user) user = getpwnam("nobody");
    if (!user || chown(f.path.c_str(), user->pw_uid, user->pw_gid) != 0) std::abort();
    return user;
}

/// In the background, in a process group of its own.
inline pid_t start(const folder& f, const passwd* user, std::vector<std::string> arguments) {
    const pid_t process = fork();
    if (process != 0) return process;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (user && (setgroups(0, nullptr) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)) _exit(126);
    const int log = open((f.path + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    dup2(log, 1);
    dup2(log, 2);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    if (chdir(f.path.c_str()) != 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
}

inline int end_of(pid_t process) {
    int status = -1;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

/// Half a minute for what starts in the background.
template <class F>
bool eventually(F&& ready) {
    for (int i = 0; i < 300; ++i) {
        if (ready()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
}

}  // namespace libraries
