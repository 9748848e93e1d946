// Loads a plug-in that may have a copy of the library of its own, and gives it objects: PLUGIN local|global|deep
// ACTION. Or, linked with the plug-in: ACTION.
#include <cstdio>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

#include "copies/plugin.h"

using namespace std::chrono_literals;

namespace {

int say(const char* what) {
    std::printf("%s\n", what);
    std::fflush(stdout);
    return 0;
}

int exchange_numbers(copies::objects& o) {
    long sum = 0;
    for (int i = 0; i < 1000; ++i) {
        o.in.send(i);
        sum += o.out.recv().value_or(-1);
    }
    o.in.close();
    return say(sum == 999'000 ? "served" : "wrong");
}

// In run(): what the plug-in does, while a goroutine of ours waits for it.
int together(const std::string& name, copies_action* action) {
    alarm(20);
    return dunlin::run([&] {
        copies::objects o;
        dunlin::task_group waiters;
        if (name == "send" || name == "close") waiters.go([&] { o.in.recv(); });
        if (name == "release") waiters.go([&] { o.permits.acquire(); });
        if (name == "lock") o.mutex.lock();
        if (name == "lock") waiters.go([&] { o.mutex.lock(); o.mutex.unlock(); });
        dunlin::sleep_for(10ms);
        if (name == "lock") o.mutex.unlock();
        if (action(o) != 1) return 1;
        waiters.wait();
        return name == "serve" ? exchange_numbers(o) : say("done");
    });
}

int act(std::string name, copies_action* (*find)(const char*)) {
    const bool first = name.starts_with("first_");
    if (first) name.erase(0, 6);
    copies_action* const action = find(("copies_" + name).c_str());
    if (action == nullptr) return say("no such action");
    if (first) {
        copies::objects o;
        if (action(o) != 1) return 1;
        say("the plug-in first");
        return dunlin::run([] { return say("then the program"); });
    }
    return together(name, action);
}

void* plugin = nullptr;

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2) {
#if defined(COPIES_LINKED)
        return act(argv[1], [](const char* name) -> copies_action* {
            return std::strcmp(name, "copies_serve") == 0  ? copies_serve
                   : std::strcmp(name, "copies_send") == 0 ? copies_send
                                                           : nullptr;
        });
#endif
    }
    if (argc != 4) return 64;
    const std::string how = argv[2];
    plugin = dlopen(argv[1], RTLD_NOW | (how == "deep"        ? RTLD_LOCAL | RTLD_DEEPBIND
                                            : how == "global" ? RTLD_GLOBAL
                                                              : RTLD_LOCAL));
    if (plugin == nullptr) return say(dlerror());
    return act(argv[3], [](const char* name) { return reinterpret_cast<copies_action*>(dlsym(plugin, name)); });
}
