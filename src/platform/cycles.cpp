#include "platform/cycles.h"

#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "platform/small_file.h"

namespace dunlin::inline v0_1::platform {

#if defined(__x86_64__)

// The kernel takes a counter that it has found uneven off its list.
static bool kernel_trusts_it() noexcept {
    const small_file list("/sys/devices/system/clocksource/clocksource0/available_clocksource");
    char room[256];
    return list.valid() && list.read(room).find("tsc") != std::string_view::npos;
}

bool cycles_are_even() noexcept {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned power = 0x80000007, invariant = 1u << 8;
    return __get_cpuid(power, &a, &b, &c, &d) != 0 && (d & invariant) != 0 && kernel_trusts_it();
}

#elif defined(__aarch64__)
bool cycles_are_even() noexcept { return true; }
#else
bool cycles_are_even() noexcept { return false; }
#endif

}  // namespace dunlin::platform
