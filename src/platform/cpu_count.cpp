#include "platform/cpu_count.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <climits>
#include <cstdint>
#include <optional>
#include <string_view>

#include "platform/simulated.h"
#include "platform/syscall.h"

namespace dunlin::inline v0_1::platform {

unsigned affinity_cpus() noexcept {
    if (simulation* s = simulation_here()) return s->cpus();
    // The kernel refuses a mask smaller than its own; 16,384 CPUs are twice what it can be built for.
    std::array<unsigned long, 256> mask;
    const long bytes = raw_syscall(SYS_sched_getaffinity, 0, sizeof(mask), syscall_arg(mask.data()));
    unsigned cpus = 0;
    for (long i = 0; i < bytes / static_cast<long>(sizeof(unsigned long)); ++i) {
        cpus += static_cast<unsigned>(std::popcount(mask[static_cast<std::size_t>(i)]));
    }
    return std::max(cpus, 1U);
}

namespace {

constexpr std::size_t path_max = 4096;

// A path put together from parts. A path that is too long cannot be opened.
class path_buffer {
public:
    path_buffer& operator+=(std::string_view part) noexcept {
        for (char c : part) {
            push(c);
        }
        return *this;
    }

    void push(char c) noexcept {
        if (length_ + 1 < text_.size()) {
            text_[length_++] = c;
        } else {
            too_long_ = true;
        }
    }

    std::string_view view() const noexcept { return {text_.data(), length_}; }
    small_file open() noexcept {
        text_[length_] = '\0';
        return too_long_ ? small_file() : small_file(text_.data());
    }

private:
    std::array<char, path_max> text_;
    std::size_t length_ = 0;
    bool too_long_ = false;
};

// Cuts off the text before the first `separator`, and the separator; all of the text if there is none.
std::string_view take_until(std::string_view& text, char separator) noexcept {
    const std::size_t at = text.find(separator);
    const std::string_view part = text.substr(0, at);
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
    return part;
}

bool contains_word(std::string_view list, std::string_view word) noexcept {
    while (!list.empty()) {
        if (take_until(list, ',') == word) {
            return true;
        }
    }
    return false;
}

// mountinfo writes blank, tab, newline and backslash as three octal digits: "\040".
void append_unescaped(path_buffer& path, std::string_view text) noexcept {
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size() && std::all_of(&text[i + 1], &text[i + 4], is_octal)) {
            path.push(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')));
            i += 3;
        } else {
            path.push(text[i]);
        }
    }
}

enum class hierarchy { none, v1, v2 };

// /proc/self/cgroup: "4:cpu,cpuacct:/user/group" for v1, "0::/user/group" for v2.
hierarchy find_group(const char* root, path_buffer& group) noexcept {
    path_buffer path;
    const small_file file = ((path += root) += "/proc/self/cgroup").open();
    std::array<char, path_max> buffer;
    line_reader lines(file, buffer);
    hierarchy found = hierarchy::none;
    for (std::string_view line; lines.next(line);) {
        const std::string_view id = take_until(line, ':');
        const std::string_view controllers = take_until(line, ':');
        const bool v1 = contains_word(controllers, "cpu");
        if (v1 || (id == "0" && controllers.empty())) {
            group = {};
            group += line;
            found = v1 ? hierarchy::v1 : hierarchy::v2;
        }
        if (v1) {
            break;
        }
    }
    return found;
}

// A mount of a part of the hierarchy, as containers see it: the group's path below the mount point is what follows the
// mount's root.
std::optional<std::string_view> path_below(std::string_view group, std::string_view mount_root) noexcept {
    if (mount_root == "/") {
        return group;
    }
    if (!group.starts_with(mount_root)) {
        return std::nullopt;
    }
    group.remove_prefix(mount_root.size());
    return group.empty() || group.front() == '/' ? std::optional(group) : std::nullopt;
}

// One line of /proc/self/mountinfo: "34 31 0:30 /root /mount/point rw,relatime shared:9 - cgroup cgroup rw,cpu".
// Appends the group's directory to `path` if the line mounts its hierarchy.
bool append_directory(path_buffer& path, std::string_view line, hierarchy wanted, std::string_view group) noexcept {
    for (int skipped = 0; skipped < 3; ++skipped) {
        take_until(line, ' ');
    }
    const std::string_view root = take_until(line, ' ');
    const std::string_view mount_point = take_until(line, ' ');
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) {
        return false;
    }
    line.remove_prefix(dash + 3);
    const std::string_view type = take_until(line, ' ');
    take_until(line, ' ');  // source
    const bool matches = wanted == hierarchy::v2 ? type == "cgroup2" : type == "cgroup" && contains_word(line, "cpu");
    if (!matches) {
        return false;
    }
    path_buffer mount_root;
    append_unescaped(mount_root, root);
    const std::optional<std::string_view> below = path_below(group, mount_root.view());
    if (!below) {
        return false;
    }
    append_unescaped(path, mount_point);
    path += *below;
    return true;
}

bool find_directory(const char* root, hierarchy wanted, std::string_view group, path_buffer& directory) noexcept {
    path_buffer path;
    const small_file file = ((path += root) += "/proc/self/mountinfo").open();
    std::array<char, path_max> buffer;
    line_reader lines(file, buffer);
    directory += root;
    for (std::string_view line; lines.next(line);) {
        if (append_directory(directory, line, wanted, group)) {
            return true;
        }
    }
    return false;
}

small_file open_in(const path_buffer& directory, std::string_view name) noexcept {
    path_buffer path = directory;
    return ((path += "/") += name).open();
}

// Negative and "max" mean no limit, as does anything that is not a number.
std::int64_t parse_time_us(std::string_view text) noexcept {
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    return status == std::errc{} && value > 0 ? value : 0;
}

}  // namespace

cpu_quota::cpu_quota(const char* root) noexcept {
    path_buffer group;
    path_buffer directory;
    const hierarchy found = find_group(root, group);
    if (found == hierarchy::none || !find_directory(root, found, group.view(), directory)) {
        return;
    }
    if (found == hierarchy::v2) {
        quota_ = open_in(directory, "cpu.max");
    } else {
        quota_ = open_in(directory, "cpu.cfs_quota_us");
        period_ = open_in(directory, "cpu.cfs_period_us");
    }
}

unsigned cpu_quota::cpus() const noexcept {
    std::array<char, 64> quota_text;
    std::array<char, 64> period_text;
    std::string_view quota = quota_.read(quota_text);
    std::string_view period = period_.read(period_text);
    if (!period_.valid()) {
        period = quota;
        quota = take_until(period, ' ');
    }
    const std::int64_t quota_us = parse_time_us(quota);
    const std::int64_t period_us = parse_time_us(period);
    if (quota_us == 0 || period_us == 0) {
        return 0;
    }
    const std::int64_t cpus = quota_us / period_us + (quota_us % period_us != 0 ? 1 : 0);
    return static_cast<unsigned>(std::min<std::int64_t>(cpus, UINT_MAX));
}

}  // namespace dunlin::platform
