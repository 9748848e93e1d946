#include "platform/usable.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <string_view>
#include <unistd.h>

#include <dunlin/config.hpp>
#include <dunlin/detail/atomic.hpp>

#include "platform/check.h"
#include "platform/text.h"

#pragma weak dlopen

extern "C" {
// Both name one place. They are defined in assembly, so that no compiler knows it.
void dunlin_copy_v0_1() noexcept;
[[gnu::visibility("hidden")]] void dunlin_own_copy() noexcept;

[[gnu::visibility("hidden"), gnu::used]] constinit dunlin::platform::copy dunlin_this_copy{
    .version = dunlin::version, .reached = dunlin_copy_v0_1, .own = dunlin_own_copy};
}

// The symbol; then the note: name "dunlin", type 1, and the distance from here to the descriptor, which needs no
// relocation.
asm(R"(
    .pushsection .text.dunlin_copy, "ax", %progbits
    .balign 16
    .globl dunlin_copy_v0_1
    .type dunlin_copy_v0_1, %function
    .globl dunlin_own_copy
    .hidden dunlin_own_copy
    .type dunlin_own_copy, %function
dunlin_copy_v0_1:
dunlin_own_copy:
    ret
    .size dunlin_copy_v0_1, . - dunlin_copy_v0_1
    .size dunlin_own_copy, . - dunlin_own_copy
    .popsection

    .pushsection .note.dunlin, "a", %note
    .balign 4
    .long 7, 4, 1
    .asciz "dunlin"
    .balign 4
    .long dunlin_this_copy - .
    .popsection
)");

namespace dunlin::inline v0_1::platform {

constinit platform::atomic<const char*> not_in_this_process{nullptr};
constinit platform::atomic<const char*> not_after_fork{nullptr};

[[gnu::noinline, gnu::cold]] void refuse(const char* why) noexcept { fatal(why); }

namespace {

constexpr std::string_view note_name{"dunlin\0", 7};
constexpr std::uint32_t note_type = 1;

constexpr std::size_t round_up(std::size_t n, std::size_t to) noexcept { return (n + to - 1) / to * to; }

// The descriptor that a segment of notes leads to; null: none of its notes is ours.
copy* find_in_notes(const std::byte* at, std::size_t bytes, std::size_t alignment) noexcept {
    const std::byte* const end = at + bytes;
    while (static_cast<std::size_t>(end - at) >= 3 * sizeof(std::uint32_t)) {
        std::uint32_t head[3];  // sizes of name and contents, type
        std::memcpy(head, at, sizeof head);
        const std::byte* const name = at + sizeof head;
        const std::size_t to_contents = round_up(sizeof head + head[0], alignment);
        const std::size_t all = round_up(to_contents + head[1], alignment);
        if (static_cast<std::size_t>(end - at) < to_contents + head[1]) return nullptr;
        if (head[2] == note_type && head[0] == note_name.size() && head[1] == sizeof(std::int32_t) &&
            std::memcmp(name, note_name.data(), note_name.size()) == 0) {
            std::int32_t distance;
            std::memcpy(&distance, at + to_contents, sizeof distance);
            return reinterpret_cast<copy*>(const_cast<std::byte*>(at + to_contents + distance));
        }
        at += std::min(all, static_cast<std::size_t>(end - at));
    }
    return nullptr;
}

copy* copy_in(const dl_phdr_info& module) noexcept {
    for (std::size_t i = 0; i < module.dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = module.dlpi_phdr[i];
        if (segment.p_type != PT_NOTE) continue;
        const auto* begin = reinterpret_cast<const std::byte*>(module.dlpi_addr + segment.p_vaddr);
        if (copy* c = find_in_notes(begin, segment.p_memsz, segment.p_align == 8 ? 8 : 4)) return c;
    }
    return nullptr;
}

// f(copy, the file that it is in) for each copy in the process, this one included.
template <class F>
void for_each_copy(F f) noexcept {
    dl_iterate_phdr(
        [](dl_phdr_info* module, std::size_t, void* raw) {
            if (copy* c = copy_in(*module)) (*static_cast<F*>(raw))(*c, module->dlpi_name);
            return 0;
        },
        &f);
}

void print_copy(text_writer& out, const copy& c, const char* file) noexcept {
    char program[512];
    if (file == nullptr || *file == '\0') {
        const ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
        program[size > 0 ? size : 0] = '\0';
        file = program;
    }
    out << file << " (" << c.version / 10000 << '.' << c.version / 100 % 100 << '.' << c.version % 100 << ')';
}

char refusal[1024];
platform::atomic<bool> refusal_written{false};

// `what` stands between the names of this copy and of the other.
void write_refusal(const copy& other, std::string_view what) noexcept {
    if (refusal_written.exchange(true)) return;
    text_writer out(-1);
    out << "two copies of dunlin in one process: that in ";
    for_each_copy([&](const copy& c, const char* file) {
        if (&c == &dunlin_this_copy) print_copy(out, c, file);
    });
    out << what;
    for_each_copy([&](const copy& c, const char* file) {
        if (&c == &other) print_copy(out, c, file);
    });
    out << " (link both with the shared library, libdunlin.so)";
    const std::string_view text = out.view().substr(0, sizeof refusal - 1);
    std::memcpy(refusal, text.data(), text.size());
    not_in_this_process.store(refusal, std::memory_order_release);
}

void forbid_this(const copy* by) noexcept {
    write_refusal(*by, " is used beside that in ");
    close_fast_paths();
}

bool is_reached(const copy& c) noexcept { return c.reached != nullptr && c.reached == c.own; }
bool both_are_reached(const copy& other) noexcept { return is_reached(dunlin_this_copy) && is_reached(other); }

// Before the constructors of the program's own objects.
[[gnu::constructor(101)]] void look_for_others() noexcept {
    dunlin_this_copy.forbid.store(forbid_this);
    const copy* at_work = nullptr;
    const copy* reached = nullptr;
    for_each_copy([&](const copy& c, const char*) {
        if (&c == &dunlin_this_copy) return;
        if (both_are_reached(c)) reached = &c;
        if (c.in_use.load() != 0) at_work = &c;
    });
    if (reached != nullptr) {
        write_refusal(*reached, " is loaded beside that in ");
        check_alone();
    }
    if (at_work != nullptr) forbid_this(at_work);
}

// The runtime's threads never end: the code that they run must stay. dlopen() is looked up, because a program that is
// linked statically has none, and needs none.
void stay_loaded() noexcept {
    const char* file = nullptr;  // the loader's own text, which stays as long as the file does
    for_each_copy([&](const copy& c, const char* name) {
        if (&c == &dunlin_this_copy) file = name;
    });
    if (dlopen != nullptr && file != nullptr && *file != '\0') dlopen(file, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace

void be_the_one_that_works() noexcept {
    check_alone();
    dunlin_this_copy.in_use.store(1);
    const copy* reached = nullptr;
    for_each_copy([&](copy& c, const char*) {
        if (&c == &dunlin_this_copy) return;
        if (both_are_reached(c)) reached = &c;
        if (c.in_use.load() != 0) {
            forbid_this(&c);
        } else if (const auto forbid = c.forbid.load()) {
            forbid(&dunlin_this_copy);
        }
    });
    if (reached != nullptr) write_refusal(*reached, " is used beside that in ");
    check_alone();
    stay_loaded();
}

}  // namespace dunlin::platform
