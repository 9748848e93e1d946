// A program without dunlin, which loads one or two plug-ins that have a copy each: PLUGIN [PLUGIN] local|global ACTION,
// in the order in which ACTION says.
#include <cstdio>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

namespace {

using function = int();

void say(const char* what) {
    std::printf("%s\n", what);
    std::fflush(stdout);
}

void* load(const char* file, int how) {
    void* const plugin = dlopen(file, RTLD_NOW | how);
    if (plugin == nullptr) {
        say(dlerror());
        _exit(1);
    }
    return plugin;
}

function* find(void* plugin, const char* name) { return reinterpret_cast<function*>(dlsym(plugin, name)); }

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 64;
    alarm(20);
    const int how = std::strcmp(argv[3], "global") == 0 ? RTLD_GLOBAL
                    : std::strcmp(argv[3], "deep") == 0 ? RTLD_DEEPBIND
                                                        : RTLD_LOCAL;
    const std::string action = argv[4];
    void* const first = load(argv[1], how);
    if (action != "load" && find(first, "copies_alone")() != 1) return 1;
    say("the first");
    if (action == "close") {
        function* const still_ticks = find(first, "copies_still_ticks");
        dlclose(first);
        if (still_ticks() != 1) return 1;
        say("stays");
        return 0;
    }
    void* const second = load(argv[2], how);
    if (find(second, "copies_still_ticks") == nullptr) return 1;
    if (action != "load" && find(second, "copies_still_ticks")() != 1) return 1;
    say("the second");
    return 0;
}
