// symbols.cpp - see symbols.h.
//
// Identity   A file may have been replaced since it was loaded. It is trusted only if its program headers and its
//            notes, among which is the build-id, are the ones in memory; the same comparison finds the image of an
//            object again after dlclose() and dlopen().
// Images     A list that only grows. Two threads that need the same one both make it, and the second to publish throws
//            its own away.
#include "stack/symbols.h"

#include <dunlin/detail/atomic.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <new>
#include <span>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/memory.h"
#include "platform/syscall.h"

namespace dunlin::inline v0_1::stack {

namespace {

using elf_header = ElfW(Ehdr);
using elf_segment = ElfW(Phdr);
using elf_section = ElfW(Shdr);
using elf_symbol = ElfW(Sym);

// ---- what is loaded

struct object {
    std::uintptr_t bias = 0;  // what was added to the addresses in the file
    std::span<const elf_segment> segments;
    const char* path = nullptr;  // empty for the main program

    bool contains(std::uintptr_t address) const noexcept {
        return std::any_of(segments.begin(), segments.end(),
                           [&](const elf_segment& s) { return s.p_type == PT_LOAD &&
                               address - bias - s.p_vaddr < s.p_memsz; });
    }
};

struct object_search {
    std::uintptr_t address;
    object found;
};

int visit_object(dl_phdr_info* info, std::size_t, void* raw) {
    auto& search = *static_cast<object_search*>(raw);
    const object o{info->dlpi_addr, {info->dlpi_phdr, info->dlpi_phnum}, info->dlpi_name ? info->dlpi_name : ""};
    if (!o.contains(search.address)) return 0;
    search.found = o;
    return 1;
}

object object_at(std::uintptr_t address) noexcept {
    object_search search{address, {}};
    dl_iterate_phdr(visit_object, &search);
    return search.found;
}

// ---- its file

// Bytes of a file that is not trusted: what lies outside reads as empty.
class elf_file {
public:
    elf_file() = default;
    explicit elf_file(file_bytes all) noexcept : all_(all) {
        const auto headers = array<elf_header>(0, 1);
        if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0) return;
        if (headers[0].e_ident[EI_CLASS] != (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32)) return;
        header_ = &headers[0];
    }

    file_bytes all() const noexcept { return all_; }
    std::span<const elf_segment> segments() const noexcept {
        return header_ ? array<elf_segment>(header_->e_phoff, header_->e_phnum) : std::span<const elf_segment>();
    }
    std::span<const elf_section> sections() const noexcept {
        return header_ ? array<elf_section>(header_->e_shoff, header_->e_shnum) : std::span<const elf_section>();
    }

    file_bytes bytes(std::uint64_t offset, std::uint64_t count) const noexcept {
        if (offset > all_.size() || count > all_.size() - offset) return {};
        return all_.subspan(offset, count);
    }
    template <class T>
    std::span<const T> array(std::uint64_t offset, std::uint64_t count) const noexcept {
        if (count > all_.size() / sizeof(T) || offset % alignof(T) != 0) return {};
        const file_bytes found = bytes(offset, count * sizeof(T));
        return {reinterpret_cast<const T*>(found.data()), found.size() / sizeof(T)};
    }

    const elf_section* section_of_type(std::uint32_t type) const noexcept {
        for (const elf_section& s : sections()) {
            if (s.sh_type == type) return &s;
        }
        return nullptr;
    }
    file_bytes content(std::string_view name) const noexcept {
        const auto all = sections();
        if (header_ == nullptr || header_->e_shstrndx >= all.size()) return {};
        const file_bytes names = content(all[header_->e_shstrndx]);
        for (const elf_section& s : all) {
            if (text_at(names, s.sh_name) == name) return content(s);
        }
        return {};
    }
    // Compressed sections are as good as absent.
    file_bytes content(const elf_section& s) const noexcept {
        return s.sh_type == SHT_NOBITS || (s.sh_flags & SHF_COMPRESSED) ? file_bytes() : bytes(s.sh_offset, s.sh_size);
    }

private:
    file_bytes all_;
    const elf_header* header_ = nullptr;
};

elf_file map_file(const char* path) noexcept {
    using platform::raw_syscall;
    const long fd = raw_syscall(SYS_openat, AT_FDCWD, platform::syscall_arg(path), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    const long size = raw_syscall(SYS_lseek, fd, 0, SEEK_END);
    void* const mapped = size > 0
        ? mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, static_cast<int>(fd), 0) : MAP_FAILED;
    raw_syscall(SYS_close, fd);
    if (mapped == MAP_FAILED) return {};
    return elf_file({static_cast<const std::byte*>(mapped), static_cast<std::size_t>(size)});
}

void unmap_file(const elf_file& file) noexcept {
    if (!file.all().empty()) munmap(const_cast<std::byte*>(file.all().data()), file.all().size());
}

bool is_file_of(const elf_file& file, const object& o) noexcept {
    const auto segments = file.segments();
    if (segments.size() != o.segments.size() ||
        std::memcmp(segments.data(), o.segments.data(), segments.size_bytes()) != 0) {
        return false;
    }
    return std::all_of(segments.begin(), segments.end(), [&](const elf_segment& s) {
        if (s.p_type != PT_NOTE || !o.contains(o.bias + s.p_vaddr)) return true;
        const file_bytes note = file.bytes(s.p_offset, s.p_filesz);
        return !note.empty() && std::memcmp(note.data(), reinterpret_cast<const void*>(o.bias + s.p_vaddr),
            note.size()) == 0;
    });
}

// ---- its functions and lines

struct function {
    std::uintptr_t begin;
    std::uint32_t size;  // 0: unknown, as that of hand-written assembly often is
    std::uint32_t name;  // offset into image::names

    friend bool operator<(const function& a, const function& b) noexcept {
        return a.begin != b.begin ? a.begin < b.begin : a.size < b.size;
    }
};

// Lines that were looked up before: to find one means to read its sequence from the beginning, and dumps ask for the
// same addresses again and again. Filled once and never emptied; what finds no place is looked up each time.
class known_lines {
public:
    const source_line* find(std::uintptr_t address) const noexcept {
        for (std::size_t i = 0; i < probes; ++i) {
            const place& p = places_[index(address, i)];
            // Acquire: pairs with the release in keep(), which publishes the other two.
            if (p.state.load(std::memory_order_acquire) == filled && p.address == address) return &p.line;
        }
        return nullptr;
    }
    void keep(std::uintptr_t address, const source_line& line) noexcept {
        for (std::size_t i = 0; i < probes; ++i) {
            place& p = places_[index(address, i)];
            std::uint32_t none = empty;
            // Relaxed: it only keeps other writers off; find() believes nothing before the release.
            if (!p.state.compare_exchange_strong(none, being_filled, std::memory_order_relaxed)) continue;
            p.address = address;
            p.line = line;
            p.state.store(filled, std::memory_order_release);
            return;
        }
    }

private:
    enum state : std::uint32_t { empty, being_filled, filled };
    struct place {
        platform::atomic<std::uint32_t> state{empty};
        std::uintptr_t address = 0;
        source_line line;
    };
    static constexpr std::size_t places = 2048, probes = 8;

    static std::size_t index(std::uintptr_t address, std::size_t i) noexcept {
        return ((address * 0x9e3779b97f4a7c15u >> 32) + i) % places;
    }
    place places_[places];
};

struct image {
    object where;
    elf_file file;  // empty if there is none, or not the one that was loaded
    file_bytes names;
    std::span<function> functions;  // sorted
    line_table lines;
    mutable known_lines known;
    image* next = nullptr;

    bool is_of(const object& o) const noexcept {
        if (where.bias != o.bias) return false;
        return file.all().empty() ? where.segments.data() == o.segments.data() : is_file_of(file, o);
    }
};

platform::atomic<image*> images{nullptr};

bool is_function(const elf_symbol& s, std::span<const elf_section> sections) noexcept {
    if (s.st_shndx == SHN_UNDEF || s.st_value == 0) return false;
    switch (s.st_info & 0xf) {
    case STT_FUNC:
    case STT_GNU_IFUNC: return true;
    case STT_NOTYPE:  // a label in assembly; the local ones of aarch64 ("$x") mark code and data
        return s.st_info >> 4 != STB_LOCAL && s.st_shndx < sections.size() &&
            (sections[s.st_shndx].sh_flags & SHF_EXECINSTR);
    default: return false;
    }
}

void read_functions(image& i) noexcept {
    const auto sections = i.file.sections();
    const elf_section* table = i.file.section_of_type(SHT_SYMTAB);
    if (table == nullptr) table = i.file.section_of_type(SHT_DYNSYM);
    if (table == nullptr || table->sh_link >= sections.size()) return;
    const auto symbols = i.file.array<elf_symbol>(table->sh_offset, table->sh_size / sizeof(elf_symbol));
    i.names = i.file.content(sections[table->sh_link]);
    const auto wanted = [&](const elf_symbol& s) { return is_function(s, sections); };
    const auto count = static_cast<std::size_t>(std::count_if(symbols.begin(), symbols.end(), wanted));
    auto* memory = count != 0 ? platform::reserve(count * sizeof(function), platform::page_size()) : nullptr;
    if (memory == nullptr) return;
    auto* end = reinterpret_cast<function*>(memory);
    for (const elf_symbol& s : symbols) {
        if (wanted(s)) {
            ::new (end++) function{s.st_value,
                static_cast<std::uint32_t>(std::min<std::uint64_t>(s.st_size, UINT32_MAX)), s.st_name};
        }
    }
    i.functions = {reinterpret_cast<function*>(memory), count};
    std::sort(i.functions.begin(), i.functions.end());
}

void discard(image* i) noexcept {
    i->lines.release();
    if (!i->functions.empty()) {
        platform::release({reinterpret_cast<std::byte*>(i->functions.data()), i->functions.size_bytes()});
    }
    unmap_file(i->file);
    platform::release({reinterpret_cast<std::byte*>(i), sizeof(image)});
}

image* make_image(const object& o) noexcept {
    std::byte* memory = platform::reserve(sizeof(image), platform::page_size());
    if (memory == nullptr) return nullptr;
    auto* i = ::new (memory) image{.where = o, .file = map_file(*o.path ? o.path : "/proc/self/exe"), .names = {},
        .functions = {}, .lines = {}, .known = {}};
    if (!is_file_of(i->file, o)) {
        unmap_file(i->file);
        i->file = {};
        return i;
    }
    read_functions(*i);
    i->lines.index({i->file.content(".debug_line"), i->file.content(".debug_line_str"), i->file.content(".debug_str")});
    return i;
}

image* find_image(image* first, const image* end, const object& o) noexcept {
    while (first != end && !first->is_of(o)) first = first->next;
    return first == end ? nullptr : first;
}

// Null when there is no memory.
const image* image_of(const object& o) noexcept {
    // Acquire pairs with the release in image_of(), below, which publishes what make_image() wrote.
    image* head = images.load(std::memory_order_acquire);
    if (image* known = find_image(head, nullptr, o)) return known;
    image* made = make_image(o);
    if (made == nullptr) return nullptr;
    made->next = head;
    while (!images.compare_exchange_weak(head, made, std::memory_order_release, std::memory_order_acquire)) {
        if (image* other = find_image(head, made->next, o)) {
            discard(made);
            return other;
        }
        made->next = head;
    }
    return made;
}

// The innermost function that covers the address. Few overlap: parts that the compiler split off, labels inside of
// assembly.
const function* function_at(const image& i, std::uintptr_t address) noexcept {
    const auto begin = i.functions.begin();
    auto at = std::upper_bound(begin, i.functions.end(), address,
        [](std::uintptr_t a, const function& f) { return a < f.begin; });
    const function* unsized = nullptr;
    for (int steps = 0; at != begin && steps < 16; ++steps) {
        --at;
        if (address - at->begin < at->size) return &*at;
        if (at->size == 0 && unsized == nullptr && steps == 0) unsized = &*at;
    }
    return unsized;
}

std::string_view without_directory(std::string_view path) noexcept { return path.substr(path.rfind('/') + 1); }

struct keep_errno {
    int value = errno;
    ~keep_errno() { errno = value; }
};

void ask_loader(symbol& s, std::uintptr_t address) noexcept {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(address), &info) == 0 || info.dli_sname == nullptr) return;
    s.name = info.dli_sname;
    s.begin = reinterpret_cast<std::uintptr_t>(info.dli_saddr);
}

}  // namespace

symbol find_symbol(std::uintptr_t address) noexcept {
    const keep_errno kept;
    const object o = object_at(address);
    if (o.path == nullptr) return {};
    symbol s;
    s.begin = o.bias;
    s.object = without_directory(*o.path ? o.path : program_invocation_short_name);
    const image* i = image_of(o);
    const function* f = i ? function_at(*i, address - o.bias) : nullptr;
    if (f != nullptr) {
        s.name = text_at(i->names, f->name);
        s.begin = o.bias + f->begin;
    } else {
        ask_loader(s, address);
    }
    return s;
}

source_line find_line(std::uintptr_t address) noexcept {
    const keep_errno kept;
    const object o = object_at(address);
    const image* i = o.path ? image_of(o) : nullptr;
    if (i == nullptr) return {};
    if (const source_line* known = i->known.find(address - o.bias)) return *known;
    const function* f = function_at(*i, address - o.bias);
    const source_line found = i->lines.find(f ? f->begin : address - o.bias, address - o.bias);
    i->known.keep(address - o.bias, found);
    return found;
}

}  // namespace dunlin::stack
