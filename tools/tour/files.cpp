// files.cpp - part 7: all processors hash a tree of files, and the system's sha256sum says whether they did it right.
#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <unistd.h>
#include <vector>

#include "parts.h"
#include "sha256.h"
#include "system.h"

namespace tour {

namespace {

using namespace std::chrono_literals;
namespace filesystem = std::filesystem;

constexpr std::size_t chunk_bytes = 256 * 1024;

struct file {
    std::string path;
    std::size_t bytes = 0;
    std::string hash;  // "" if it could not be read
};

// A piece of work for one goroutine: some files that follow each other.
struct chunk {
    std::size_t first = 0, last = 0, bytes = 0;
};

filesystem::path tree() {
    for (const char* place : {"/usr/include", "/usr/share/doc", "/usr/share", "/etc"}) {
        std::error_code ignored;
        if (filesystem::is_directory(place, ignored)) return place;
    }
    return ".";
}

// All regular files below `root` that may be read, sorted, up to `limit` bytes.
std::vector<file> list_files(const filesystem::path& root, std::size_t limit) {
    std::vector<file> found;
    std::error_code ignored;
    filesystem::recursive_directory_iterator i(root, filesystem::directory_options::skip_permission_denied, ignored),
        end;
    for (; i != end; i.increment(ignored)) {
        if (!i->is_symlink(ignored) && i->is_regular_file(ignored) && access(i->path().c_str(), R_OK) == 0) {
            found.push_back({i->path().string(), i->file_size(ignored), ""});
        }
    }
    std::sort(found.begin(), found.end(), [](const file& a, const file& b) { return a.path < b.path; });
    std::size_t bytes = 0, count = 0;
    while (count < found.size() && bytes < limit) bytes += found[count++].bytes;
    found.resize(count);
    return found;
}

std::vector<chunk> cut(const std::vector<file>& files) {
    std::vector<chunk> chunks;
    chunk c;
    for (std::size_t i = 0; i < files.size(); ++i) {
        c.last = i + 1;
        c.bytes += files[i].bytes;
        if (c.bytes >= chunk_bytes || i + 1 == files.size()) {
            chunks.push_back(c);
            c = {i + 1, i + 1, 0};
        }
    }
    return chunks;
}

// Ordinary blocking calls, in a goroutine.
std::string hash_of(const std::string& path, char* buffer, std::size_t size) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return "";
    sha256 hash;
    ssize_t n;
    while ((n = read(fd, buffer, size)) > 0) hash.add(buffer, static_cast<std::size_t>(n));
    close(fd);
    return n < 0 ? "" : sha256::hex(hash.finish());
}

void hash_chunk(std::vector<file>& files, const chunk& c) {
    constexpr std::size_t size = 64 * 1024;
    const auto buffer = std::make_unique<char[]>(size);
    for (std::size_t i = c.first; i < c.last; ++i) files[i].hash = hash_of(files[i].path, buffer.get(), size);
}

void hash_all(std::vector<file>& files, const std::vector<chunk>& chunks, std::size_t bytes) {
    std::atomic<std::size_t> hashed{0}, left{chunks.size()};
    dunlin::wait_group group;
    for (const chunk& c : chunks) {
        group.go([&files, &hashed, &left, c] {
            hash_chunk(files, c);
            hashed.fetch_add(c.bytes, std::memory_order_relaxed);
            left.fetch_sub(1, std::memory_order_relaxed);
        });
    }
    {
        progress line("hashed", bytes);
        while (left.load(std::memory_order_relaxed) != 0) {
            dunlin::sleep_for(10ms);
            line.show(hashed.load(std::memory_order_relaxed));
        }
    }
    group.wait();
}

// One digest for all: of the sorted lines "hash  path", each ended by a zero byte, as `sha256sum --zero` writes them.
std::string digest_of(std::vector<std::string> lines) {
    std::sort(lines.begin(), lines.end());
    sha256 all;
    for (const std::string& line : lines) all.add(line.c_str(), line.size() + 1);
    return sha256::hex(all.finish());
}

std::vector<std::string> lines_of(const std::string& zero_separated) {
    std::vector<std::string> lines;
    for (std::size_t at = 0, end; (end = zero_separated.find('\0', at)) != zero_separated.npos; at = end + 1) {
        lines.push_back(zero_separated.substr(at, end - at));
    }
    return lines;
}

void check(const std::vector<file>& files) {
    claim(sha256::hex(sha256::of("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "our SHA-256 of \"abc\" is the one in the standard");
    std::vector<std::string> ours;
    std::string names;
    for (const file& f : files) {
        ours.push_back(f.hash + "  " + f.path);
        names += f.path + '\0';
    }
    const outcome child = run_program({"xargs", "-0", "sha256sum", "--zero", "--"}, names, listen_to::out);
    if (!child.started || child.status == 127) {
        say("There is no sha256sum here to compare with.");
        return;
    }
    const std::vector<std::string> theirs = lines_of(child.text);
    const std::string our_digest = digest_of(ours), their_digest = digest_of(theirs);
    say("our digest     %s", our_digest.c_str());
    say("sha256sum's    %s   (of %s lines, sorted; it took %s)", their_digest.c_str(),
        with_commas(theirs.size()).c_str(), readable(child.took).c_str());
    claim(child.status == 0 && our_digest == their_digest, "sha256sum finds the same in all %s files",
        with_commas(files.size()).c_str());
}

void show_shares(
    const dunlin::runtime::runtime_stats& before, const dunlin::runtime::runtime_stats& after, std::size_t chunks) {
    using stats = dunlin::runtime::processor_stats;
    for (std::size_t p = 0; p < after.procs.size(); ++p) {
        const std::uint64_t ended = growth(before, after, p, &stats::ended);
        if (ended == 0) continue;
        const double share = static_cast<double>(ended) / static_cast<double>(chunks);
        say("processor %-3zu  %s %5.1f %%  ran %4llu goroutines, has stolen %llu", p, bar(share).c_str(), 100 * share,
            static_cast<unsigned long long>(ended),
            static_cast<unsigned long long>(growth(before, after, p, &stats::stolen)));
    }
}

}  // namespace

void files(const options& o) {
    explain(
        "Each goroutine opens, reads and hashes (SHA-256) some files, with ordinary blocking calls: about 256 KiB, then it\n"
        "ends. A wait_group waits for all of them. The work is not divided among the processors: they help themselves.");
    const filesystem::path root = tree();
    std::vector<file> files = list_files(root, o.quick ? 16'000'000 : 300'000'000);
    const std::vector<chunk> chunks = cut(files);
    std::size_t bytes = 0;
    for (const file& f : files) bytes += f.bytes;
    dunlin::run([&] {
        const dunlin::runtime::runtime_stats before = dunlin::runtime::stats();
        const stopwatch watch;
        hash_all(files, chunks, bytes);
        const double seconds = watch.seconds();
        settle();
        const dunlin::runtime::runtime_stats after = dunlin::runtime::stats();
        say("%s: %s files, %.1f MB, by %s goroutines in %.2f s: %s", root.c_str(), with_commas(files.size()).c_str(),
            static_cast<double>(bytes) / 1e6, with_commas(chunks.size()).c_str(), seconds,
            bold(text("%.0f MB/s", static_cast<double>(bytes) / 1e6 / seconds)).c_str());
        show_shares(before, after, chunks.size());
        claim(growth(before, after, &dunlin::runtime::processor_stats::ended) == chunks.size(),
            "every chunk was done by one goroutine");
        check(files);
    });
}

}  // namespace tour
