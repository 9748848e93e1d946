#include "stack/trace.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <dunlin/dunlin.hpp>
#include <gtest/gtest.h>

#include "platform/thread.h"
#include "stack/symbols.h"
#include "support/build.h"

namespace {

using namespace dunlin::stack;
namespace fs = std::filesystem;

// Keeps a call from becoming a jump, which would leave no frame.
#define KEEP_FRAME asm volatile("" ::: "memory")

[[gnu::noinline]] trace static_function_of_the_test(int depth) {
    const trace t = depth > 0 ? static_function_of_the_test(depth - 1) : capture_trace();
    KEEP_FRAME;
    return t;
}

template <class T>
[[gnu::noinline]] trace with_argument(T f) {
    const trace t = f();
    KEEP_FRAME;
    return t;
}

std::string printed(const trace& t, bool hide_runtime = true) {
    std::string text;
    dunlin::platform::text_writer out(text);
    print_trace(out, t, hide_runtime);
    return text;
}

std::string printed(std::uintptr_t address) {
    std::string text;
    dunlin::platform::text_writer out(text);
    print_symbol(out, reinterpret_cast<const void*>(address + 1));
    return text;
}

template <class F>
std::uintptr_t address_of(F* function) {
    return reinterpret_cast<std::uintptr_t>(function);
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::vector<char> read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::vector<char>& bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class scratch {
public:
    scratch() {
        std::string name = (fs::temp_directory_path() / "dunlin_trace_XXXXXX").string();
        path_ = mkdtemp(name.data());
    }
    ~scratch() { fs::remove_all(path_); }
    fs::path operator/(const char* name) const { return path_ / name; }

private:
    fs::path path_;
};

std::span<Elf64_Shdr> sections_of(std::vector<char>& file) {
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file.data());
    return {reinterpret_cast<Elf64_Shdr*>(file.data() + header->e_shoff), header->e_shnum};
}

std::span<const char> section(std::vector<char>& file, std::string_view name) {
    const auto sections = sections_of(file);
    const char* names = file.data() + sections[reinterpret_cast<const Elf64_Ehdr*>(file.data())->e_shstrndx].sh_offset;
    for (const Elf64_Shdr& s : sections) {
        if (names + s.sh_name == name && !(s.sh_flags & SHF_COMPRESSED)) return {file.data() + s.sh_offset, s.sh_size};
    }
    return {};
}

// ---- names

TEST(Symbols, NameAFunctionThatIsNotExported) {
    const auto address = address_of(static_function_of_the_test);
    const symbol s = find_symbol(address);
    EXPECT_TRUE(contains(s.name, "static_function_of_the_test")) << s.name;
    EXPECT_EQ(s.begin, address);
    EXPECT_TRUE(contains(s.object, "trace_test")) << s.object;
}

TEST(Symbols, NameAFunctionOfASharedLibrary) {
    const auto address = reinterpret_cast<std::uintptr_t>(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
    if (address == 0) GTEST_SKIP() << "not glibc, or a static program";
    const symbol s = find_symbol(address);
    EXPECT_EQ(s.name, "gnu_get_libc_version");
    EXPECT_EQ(s.begin, address);
    EXPECT_TRUE(contains(s.object, "libc")) << s.object;
}

TEST(Symbols, KnowNothingOutsideOfEveryObject) {
    static char data[1];
    const symbol heap = find_symbol(reinterpret_cast<std::uintptr_t>(std::make_unique<int>().get()));
    EXPECT_TRUE(heap.name.empty() && heap.object.empty());
    EXPECT_TRUE(find_symbol(0).name.empty());
    EXPECT_TRUE(find_symbol(UINTPTR_MAX).object.empty());
    EXPECT_EQ(find_line(0).line, 0u);
    EXPECT_TRUE(contains(find_symbol(reinterpret_cast<std::uintptr_t>(data)).object, "trace_test"));
}

TEST(Trace, NamesTheFramesInnermostFirst) {
    const std::string text = printed(static_function_of_the_test(2));
    const std::size_t first = text.find("#0 "), third = text.find("#2 "), fourth = text.find("#3 ");
    ASSERT_TRUE(first < third && third < fourth && fourth != text.npos) << text;
    EXPECT_TRUE(contains(text.substr(third, fourth - third), "static_function_of_the_test(int)")) << text;
    EXPECT_TRUE(contains(text, "Trace_NamesTheFramesInnermostFirst_Test::TestBody()")) << text;
}

TEST(Trace, NamesALambdaByWhereItStands) {
    const auto f = []() __attribute__((noinline)) {
        const trace t = capture_trace();
        KEEP_FRAME;
        return t;
    };
    const std::string text = printed(with_argument(f));
    EXPECT_TRUE(contains(text, "TestBody()::{lambda()#1}") || contains(text, "TestBody()::$_0")) << text;
    EXPECT_TRUE(contains(text, "with_argument<")) << text;
    EXPECT_FALSE(contains(text, "operator()")) << text;
}

TEST(Trace, ShortensLongArguments) {
    struct a_type_with_a_name_that_goes_on_and_on_and_on_for_longer_than_anybody_wants_to_read {
        trace operator()() const { return capture_trace(); }
    };
    const std::string text =
        printed(with_argument(a_type_with_a_name_that_goes_on_and_on_and_on_for_longer_than_anybody_wants_to_read{}));
    EXPECT_TRUE(contains(text, "with_argument<...>(")) << text;
    std::stringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 220u) << line;
}

TEST(Trace, SaysTheLineOfTheCall) {
    if (find_line(address_of(static_function_of_the_test)).line == 0)
        GTEST_SKIP() << "compiled without -g, or with compressed sections";
    const int line = __LINE__ + 1;
    const std::string text = printed(with_argument([] { return capture_trace(); }));
    EXPECT_TRUE(contains(text, " trace_test.cpp:" + std::to_string(line))) << text;
}

TEST(Trace, HidesTheRuntimeOnlyIfSomethingIsLeft) {
    const auto inside = [](auto* function) { return reinterpret_cast<void*>(address_of(function) + 1); };
    trace t;
    t.pc[t.size++] = inside(dunlin::platform::thread_id);
    EXPECT_TRUE(contains(printed(t), "thread_id")) << printed(t);
    t.pc[t.size++] = inside(static_function_of_the_test);
    EXPECT_FALSE(contains(printed(t), "thread_id")) << printed(t);
    EXPECT_TRUE(contains(printed(t), "static_function_of_the_test")) << printed(t);
}

TEST(Trace, ChangesNoErrno) {
    errno = 4711;
    const trace t = static_function_of_the_test(1);
    const std::string text = printed(t);
    EXPECT_EQ(errno, 4711);
    EXPECT_FALSE(text.empty());
}

// ---- in a signal handler

std::function<void()> body_of_handler;

// Runs body() in a handler on a stack of 64 KiB, as the runtime's threads have, and returns how much of it was used.
[[gnu::noinline]] std::size_t interrupted_function(std::function<void()> body) {
    constexpr std::size_t bytes = 64 << 10;
    std::vector<unsigned char> memory(bytes, 0xa5);
    body_of_handler = std::move(body);
    stack_t ours{}, before{};
    ours.ss_sp = memory.data();
    ours.ss_size = bytes;
    EXPECT_EQ(sigaltstack(&ours, &before), 0);
    struct sigaction action {}, old {};
    action.sa_flags = SA_ONSTACK;
    action.sa_handler = [](int) { body_of_handler(); };
    sigaction(SIGUSR1, &action, &old);
    raise(SIGUSR1);
    sigaction(SIGUSR1, &old, nullptr);
    // it says 0 when there was none, and then refuses it
    before.ss_size = std::max<std::size_t>(before.ss_size, MINSIGSTKSZ);
    sigaltstack(&before, nullptr);
    return static_cast<std::size_t>(
        memory.end() - std::find_if(memory.begin(), memory.end(), [](unsigned char c) { return c != 0xa5; }));
}

// raise() is in the C library, as malloc() is, but it holds no lock of the heap: names are whole.
TEST(Trace, OfASignalHandlerBeginsWithWhatWasInterrupted) {
    if (support::under_thread) GTEST_SKIP() << "the sanitizer calls handlers when it likes, not where the signal was";
    std::string text;
    text.reserve(1 << 16);
    const std::size_t used = interrupted_function([&] {
        dunlin::platform::text_writer out(text);
        print_trace(out, capture_trace());
    });
    EXPECT_TRUE(contains(text, "interrupted_function")) << text;
    EXPECT_TRUE(contains(text, "Trace_OfASignalHandlerBeginsWithWhatWasInterrupted_Test::TestBody")) << text;
    EXPECT_FALSE(
        contains(text, "__restore_rt") || contains(text, "lambda") || contains(text, "std::function<void ()>::"))
        << text;
    EXPECT_TRUE(contains(text, "interrupted_function(std::function<void ()>)")) << text;
    if (!support::sanitized) {
        EXPECT_LT(used, 24u << 10);
    }
}

TEST(Trace, NeedsLittleStackToDemangle) {
    if (support::under_thread) GTEST_SKIP() << "the demangler allocates, which a signal handler should not";
    std::string text;
    text.reserve(1 << 16);
    const trace t = with_argument([] { return capture_trace(); });
    const std::size_t used = interrupted_function([&] {
        dunlin::platform::text_writer out(text);
        print_trace(out, t);
    });
    EXPECT_TRUE(contains(text, "Trace_NeedsLittleStackToDemangle_Test::TestBody()")) << text;
    if (!support::sanitized) {
        EXPECT_LT(used, 48u << 10);
    }
}

// ---- files that are not what they were

TEST(TraceChild, DISABLED_PrintsItself) {
    std::printf("%s\n", printed(address_of(static_function_of_the_test)).c_str());
    const void* exported = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
    if (exported) std::printf("%s\n", printed(reinterpret_cast<std::uintptr_t>(exported)).c_str());
}

// What a copy of this program prints about itself, after `change` to the file. Nothing if it cannot be run here.
template <class Change>
std::optional<std::string> output_of_copy(Change change) {
    const scratch directory;
    const fs::path copy = directory / "copy";
    std::vector<char> file = read_file("/proc/self/exe");
    change(file);
    write_file(copy, file);
    fs::permissions(copy, fs::perms::owner_all);
    FILE* out =
        popen((copy.string() + " --gtest_also_run_disabled_tests --gtest_filter='TraceChild.*' 2>&1").c_str(), "r");
    std::string text;
    char buffer[4096];
    for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, out)) > 0;) text.append(buffer, n);
    const int status = pclose(out);
    if (WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 127) return {};
    EXPECT_EQ(status, 0) << text;
    return text;
}

TEST(Symbols, OfACopyAreTheSame) {
    const auto text = output_of_copy([](std::vector<char>&) {});
    if (!text) GTEST_SKIP() << "a copy cannot be run here";
    EXPECT_TRUE(contains(*text, "static_function_of_the_test(int)")) << *text;
}

TEST(Symbols, OfAStrippedFileAreOffsets) {
    const auto text = output_of_copy([](std::vector<char>& file) {
        const auto lines = section(file, ".debug_line");
        for (Elf64_Shdr& s : sections_of(file)) {
            const bool of_lines = !lines.empty() && file.data() + s.sh_offset == lines.data();
            if (s.sh_type == SHT_SYMTAB || of_lines) s.sh_type = SHT_NULL, s.sh_size = 0;
        }
    });
    if (!text) GTEST_SKIP() << "a copy cannot be run here";
    EXPECT_FALSE(contains(*text, "static_function_of_the_test")) << *text;
    EXPECT_TRUE(contains(*text, "+0x")) << *text;
    EXPECT_TRUE(contains(*text, "(copy)")) << *text;
    EXPECT_TRUE(contains(*text, "gnu_get_libc_version")) << *text;
}

TEST(Symbols, OfAFileWithDamagedSectionHeadersAreOffsets) {
    const auto text = output_of_copy(
        [](std::vector<char>& file) { reinterpret_cast<Elf64_Ehdr*>(file.data())->e_shoff = std::uint64_t{1} << 62; });
    if (!text) GTEST_SKIP() << "a copy cannot be run here";
    EXPECT_FALSE(contains(*text, "static_function_of_the_test")) << *text;
    EXPECT_TRUE(contains(*text, "(copy)")) << *text;
}

TEST(Symbols, OfAFileWithoutTheTextOfNamesAreOffsets) {
    const auto text = output_of_copy([](std::vector<char>& file) {
        for (Elf64_Shdr& s : sections_of(file)) {
            if (s.sh_type == SHT_SYMTAB) s.sh_link = 0xffff;
        }
    });
    if (!text) GTEST_SKIP() << "a copy cannot be run here";
    EXPECT_FALSE(contains(*text, "static_function_of_the_test(int)")) << *text;
}

// Another file of the same name: its names would be wrong, those that the loader knows are right.
TEST(Symbols, OfALibraryReplacedSinceItWasLoadedAreThoseOfTheLoader) {
    Dl_info info{};
    if (dladdr(dlsym(RTLD_DEFAULT, "cbrt"), &info) == 0) GTEST_SKIP() << "no libm";
    std::vector<char> file = read_file(fs::canonical(info.dli_fname));
    const scratch directory;
    const fs::path copy = directory / "libcopy.so";
    write_file(copy, file);
    void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto address = reinterpret_cast<std::uintptr_t>(dlsym(library, "cbrt"));

    const auto id = section(file, ".note.gnu.build-id");
    if (id.empty()) GTEST_SKIP() << "libm has no build-id";
    file[static_cast<std::size_t>(id.data() + id.size() - 1 - file.data())] ^= 1;
    constexpr char old_name[] = "cbrt";
    for (auto at = file.begin(); (at = std::search(at, file.end(), old_name, std::end(old_name))) != file.end();)
        *at = 'X';
    write_file(directory / "other", file);
    fs::rename(directory / "other", copy);

    const symbol s = find_symbol(address);
    EXPECT_TRUE(contains(s.name, "cbrt")) << s.name;
    EXPECT_EQ(s.begin, address);
    EXPECT_EQ(s.object, "libcopy.so");
    dlclose(library);
}

TEST(Symbols, OfALibraryDeletedSinceItWasLoadedAreThoseOfTheLoader) {
    Dl_info info{};
    if (dladdr(dlsym(RTLD_DEFAULT, "cbrt"), &info) == 0) GTEST_SKIP() << "no libm";
    std::optional<scratch> directory(std::in_place);
    const fs::path copy = *directory / "libgone.so";
    fs::copy_file(fs::canonical(info.dli_fname), copy);
    void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    directory.reset();
    const auto address = reinterpret_cast<std::uintptr_t>(dlsym(library, "cbrt"));
    EXPECT_TRUE(contains(find_symbol(address).name, "cbrt"));
    EXPECT_EQ(find_line(address).line, 0u);
    dlclose(library);
}

TEST(Symbols, AreFoundByManyThreadsAtOnce) {
    Dl_info info{};
    if (dladdr(dlsym(RTLD_DEFAULT, "cbrt"), &info) == 0) GTEST_SKIP() << "no libm";
    const scratch directory;
    const fs::path copy = directory / "libshared.so";
    fs::copy_file(fs::canonical(info.dli_fname), copy);
    void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto address = reinterpret_cast<std::uintptr_t>(dlsym(library, "cbrt"));
    std::atomic<int> right{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; ++i) threads.emplace_back([&] { right += contains(find_symbol(address).name, "cbrt"); });
    }
    EXPECT_EQ(right, 8);
    dlclose(library);
}

TEST(LineTable, SurvivesDamage) {
    auto file = read_file("/proc/self/exe");
    const auto lines = section(file, ".debug_line");
    if (lines.empty()) GTEST_SKIP() << "compiled without -g";
    std::mt19937 random(8123);
    std::vector<std::byte> bytes(lines.size());
    for (int round = 0; round < support::rounds(100); ++round) {
        std::memcpy(bytes.data(), lines.data(), lines.size());
        for (int i = 0; i < 100; ++i)
            bytes[random() % (i < 50 ? std::min<std::size_t>(bytes.size(), 300) : bytes.size())] = std::byte(random());
        const std::size_t size = round % 2 ? bytes.size() : random() % bytes.size();
        line_table table;
        table.index({std::span(bytes).first(size), {}, {}});
        const auto address = address_of(static_function_of_the_test) - round;
        EXPECT_TRUE(table.find(address, address).file.size() < bytes.size());
        table.release();
    }
}

// ---- of goroutines

[[gnu::noinline]] void sleeps_in_a_function_of_the_user(std::chrono::milliseconds d) {
    dunlin::sleep_for(d);
    KEEP_FRAME;
}

// What is left out: the runtime that the goroutine waits in, and what called its function.
TEST(Dump, NamesTheUsersFunctions) {
    std::ostringstream text;
    dunlin::run([&] {
        dunlin::task<void> t = dunlin::spawn([] {
            sleeps_in_a_function_of_the_user(std::chrono::milliseconds(200));
            KEEP_FRAME;
        });
        dunlin::sleep_for(std::chrono::milliseconds(50));
        dunlin::runtime::dump(text);
        t.get();
    });
    const std::string all = text.str();
    EXPECT_TRUE(contains(all, "sleeps_in_a_function_of_the_user(")) << all;
    EXPECT_TRUE(
        contains(all, "TestBody()::{lambda()#1}::{lambda()#1}") || contains(all, "TestBody()::$_0::{lambda()#1}"))
        << all;
    for (const char* hidden :
        {"dunlin::sched::", "dunlin::timers::", "dunlin::detail::", "dunlin_", "std::invoke", "std::__invoke"}) {
        EXPECT_FALSE(contains(all, hidden)) << hidden << '\n' << all;
    }
}

}  // namespace
