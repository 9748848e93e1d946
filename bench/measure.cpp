#include "measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "registry.h"

namespace bench {

double percentile(std::vector<double>& samples, double q) {
    std::sort(samples.begin(), samples.end());
    const double position = q * static_cast<double>(samples.size() - 1);
    const auto low = static_cast<std::size_t>(position);
    if (low + 1 == samples.size()) return samples[low];
    return samples[low] + (position - static_cast<double>(low)) * (samples[low + 1] - samples[low]);
}

double status_bytes(const char* field) {
    std::ifstream status("/proc/self/status");
    const std::string wanted = std::string(field) + ":";
    for (std::string word; status >> word;) {
        double kilobytes = 0;
        if (word == wanted && status >> kilobytes) return kilobytes * 1024;
    }
    fail("/proc/self/status has no field " + wanted);
}

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace bench
