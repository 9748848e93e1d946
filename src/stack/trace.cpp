// trace.cpp - see trace.h.
//
// Names      A closure's mangled name says where it stands, and spells out its template arguments in full; a report
//            needs the first and has no room for the second. So "main::{lambda()#1}::operator()() const" becomes
//            "main::{lambda()#1}", and long arguments become "<...>".
// Hidden     Layers below the public interface, the unwinder, and the entries that lead to a goroutine's function
//            (run_detached<F>, std::invoke). If the optimiser has inlined F into its entry, the entry is the only frame
//            there is, and it is shown under F's name. If nothing is left, nothing is hidden: a function of the program
//            may have been inlined into any template.
// Heap       The demangler needs it. A thread that overflows its stack in malloc() holds malloc's lock, so then a name
//            is shown only as far as it can be read without: see uses_heap().
#include "stack/trace.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <unwind.h>

#include "platform/demangle.h"
#include "stack/sanitizer.h"
#include "stack/symbols.h"

extern "C" long dunlin_call_above(const dunlin::stack::context*, long (*)(void*), void*);  // entry_<cpu>.S

namespace dunlin::inline v0_1::stack {

namespace {

using namespace std::string_view_literals;

struct collector {
    trace* into;
    std::size_t skip;
};

_Unwind_Reason_Code collect(_Unwind_Context* frame, void* raw) {
    collector& c = *static_cast<collector*>(raw);
    trace& t = *c.into;
    int interrupted = 0;
    const std::uintptr_t pc = _Unwind_GetIPInfo(frame, &interrupted);
    if (pc == 0) return _URC_END_OF_STACK;
    // a handler is not what went wrong, nor is the frame that the kernel made to return from it
    if (interrupted) t.size = 0;
    if (t.size == trace_frames_max) return _URC_END_OF_STACK;
    if (c.skip > 0) {
        --c.skip;
    } else {
        t.pc[t.size++] = reinterpret_cast<void*>(pc + (interrupted ? 1 : 0));
    }
    return _URC_NO_REASON;
}

struct deep_collector {
    deep_trace* into;
    bool in_handler;  // nothing of what was interrupted has been seen yet
    std::size_t left;
};

// The frames of an overwritten stack may form a circle.
constexpr std::size_t deepest = std::size_t{1} << 22;

_Unwind_Reason_Code collect_deep(_Unwind_Context* frame, void* raw) {
    deep_collector& c = *static_cast<deep_collector*>(raw);
    int interrupted = 0;
    const std::uintptr_t at = _Unwind_GetIPInfo(frame, &interrupted);
    if (interrupted) c.in_handler = false;
    if (at == 0 || c.left-- == 0) return _URC_END_OF_STACK;
    if (c.in_handler) return _URC_NO_REASON;
    void* const pc = reinterpret_cast<void*>(at + (interrupted ? 1 : 0));
    deep_trace& t = *c.into;
    if (t.inner.size < trace_frames_max) t.inner.pc[t.inner.size++] = pc;
    // The first frame with this address counts for all of them.
    for (std::size_t i = 0; i < t.inner.size; ++i) {
        if (t.inner.pc[i] != pc) continue;
        ++t.times[i];
        break;
    }
    t.outer[t.frames++ % deep_trace::ends] = pc;
    return _URC_NO_REASON;
}

long collect_here(void* raw) {
    _Unwind_Backtrace(collect, raw);
    return 0;
}

// ---- names

bool take_prefix(std::string_view& text, std::string_view prefix) noexcept {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

// Where the bracket closes that opens at `at`; npos if it does not.
std::size_t closing(std::string_view text, std::size_t at) noexcept {
    int depth = 0;
    for (std::size_t i = at; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '<' || c == '(' || c == '{' || c == '[') ++depth;
        if (c == ')' || c == '}' || c == ']' || (c == '>' && text[i - 1] != '-')) --depth;
        if (depth == 0) return i;
    }
    return text.npos;
}

// A name of fixed size. What does not fit is cut off, and marked.
class readable {
public:
    std::string_view text() const noexcept { return {text_.data(), size_}; }

    void add(std::string_view more) noexcept {
        const std::size_t room = limit - size_;
        std::copy_n(more.begin(), std::min(more.size(), room), text_.begin() + size_);
        size_ += std::min(more.size(), room);
        if (more.size() > room) cut();
    }

    // A demangled name without what only a linker wants to know.
    void add_demangled(std::string_view name) noexcept {
        name = name.substr(0, name.find(" [clone "));
        while (!name.empty() && size_ < limit) {
            if (take_prefix(name, "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >")) {
                add("std::string");
            } else if (take_prefix(name, "operator")) {
                add("operator");
                add_some(name, name.find_first_not_of("<=>-"));
            } else if (ends_with_closure() && take_prefix(name, "::operator()(")) {
                name.remove_prefix(std::min(name.size(), rest_of_call(name)));
            } else if (name[0] == '<' && closing(name, 0) != name.npos && closing(name, 0) > arguments_max) {
                add("<...>");
                name.remove_prefix(closing(name, 0) + 1);
            } else {
                add_some(name, 1);
            }
        }
        if (!name.empty()) cut();
    }

private:
    static constexpr std::size_t limit = 120, arguments_max = 48;

    // "{lambda()#1}", and clang's "$_0"
    bool ends_with_closure() const noexcept {
        const std::string_view so_far = text();
        return so_far.ends_with('}') || so_far.substr(0, so_far.find_last_not_of("0123456789") + 1).ends_with("$_");
    }

    // "int) const::f()" -> 10, the length of "int) const"
    static std::size_t rest_of_call(std::string_view parameters) noexcept {
        int depth = 1;
        std::size_t i = 0;
        while (i < parameters.size() && depth > 0) {
            depth += parameters[i] == '(' ? 1 : parameters[i] == ')' ? -1 : 0;
            ++i;
        }
        return parameters.substr(i).starts_with(" const") ? i + 6 : i;
    }

    void add_some(std::string_view& name, std::size_t count) noexcept {
        add(name.substr(0, count));
        name.remove_prefix(std::min(name.size(), count));
    }

    void cut() noexcept { std::fill_n(text_.begin() + limit - 3, 3, '.'); }

    std::array<char, limit> text_;
    std::size_t size_ = 0;
};

// The demangler keeps 70 bytes of stack for every character, and a signal handler has 64 KiB in all.
constexpr std::size_t mangled_max = 320;

// The namespace of the version, as it stands in mangled names.
static_assert(std::string_view(DUNLIN_ABI_NAME).size() == 4);
constexpr std::string_view mangled_version = "4" DUNLIN_ABI_NAME;

// For a name that cannot be demangled here: the namespaces, classes and function that it begins with.
// "_ZN4user5cacheIN..." -> "user::cache<...>"
void add_outline(readable& out, std::string_view mangled) noexcept {
    const std::string_view whole = mangled;
    mangled.remove_prefix(std::min(mangled.find_first_not_of("_ZNKVrRO"), mangled.size()));
    bool first = true;
    for (;;) {
        if (take_prefix(mangled, "St")) {
            out.add("std");
        } else if (!take_prefix(mangled, mangled_version)) {
            take_prefix(mangled, "L");
            std::size_t length = 0;
            while (!mangled.empty() && mangled[0] >= '0' && mangled[0] <= '9' && length < mangled.size()) {
                length = length * 10 + static_cast<std::size_t>(mangled[0] - '0');
                mangled.remove_prefix(1);
            }
            if (length == 0 || length > mangled.size()) break;
            if (!first) out.add("::");
            out.add(mangled.starts_with("_GLOBAL__N") ? "(anonymous namespace)" : mangled.substr(0, length));
            mangled.remove_prefix(length);
        }
        first = false;
    }
    out.add(first ? whole : mangled.starts_with('I') ? "<...>"sv : "..."sv);
}

// ---- frames

enum class part { program, runtime, entry };

// Decided by the mangled name: a demangled one may begin with the type of the result.
part part_of(std::string_view mangled) noexcept {
    if (!take_prefix(mangled, "_Z")) {
        const auto is = [&](std::string_view prefix) { return mangled.starts_with(prefix); };
        return is("dunlin_") || is("_Unwind_") || is("__cxa_throw") || is("__cxa_rethrow") ? part::runtime
            : part::program;
    }
    mangled.remove_prefix(std::min(mangled.find_first_not_of("ZNKVrRO"), mangled.size()));
    for (const std::string_view name
        : {"St6invokeI"sv, "St8__invokeI"sv, "St13__invoke_implI"sv, "St5applyI"sv, "St12__apply_implI"sv}) {
        if (mangled.starts_with(name)) return part::entry;
    }
    if (!take_prefix(mangled, "6dunlin")) return part::program;
    take_prefix(mangled, mangled_version);
    for (const std::string_view name
        : {"6detail12run_detachedI"sv, "6detail10bound_callI"sv, "6detail10task_frameI"sv, "3runI"sv}) {
        if (mangled.starts_with(name)) return part::entry;
    }
    if (mangled.find("6member5entryEPv") != mangled.npos) return part::entry;  // of wait_group
    if (mangled.find("E5entryEPv") != mangled.npos || mangled.find("E3runE") != mangled.npos) {
        for (const std::string_view name
            : {"10task_group6memberI"sv, "6detail13timed_call_ofI"sv, "6detail14stored_call_ofI"sv,
               "6detail13jthread_frameI"sv, "6detail11async_frameI"sv, "6detail20packaged_function_ofI"sv,
               "6detail14deferred_stateI"sv}) {
            if (mangled.starts_with(name)) return part::entry;
        }
    }
    for (const std::string_view layer
        : {"8platform"sv, "5stack"sv, "5sched"sv, "4park"sv, "6timers"sv, "4poll"sv, "7observe"sv, "6detail"sv}) {
        if (mangled.starts_with(layer)) return part::runtime;
    }
    return part::program;
}

// std::lock_guard's constructor, std::scoped_lock's, dunlin::mutex::lock(): what stands between the runtime and the
// program's own functions.
bool of_library(std::string_view mangled) noexcept {
    if (!take_prefix(mangled, "_Z")) return false;
    mangled.remove_prefix(std::min(mangled.find_first_not_of("ZNKVrRO"), mangled.size()));
    return mangled.starts_with("St") || mangled.starts_with("6dunlin");
}

// "void dunlin::detail::run_detached<dunlin::detail::bound_call<main::{lambda()#1}> >(void*)" -> "main::{lambda()#1}".
// Empty if what is called is a function pointer: then the function has a frame of its own.
std::string_view called_by_entry(std::string_view name) noexcept {
    for (;;) {
        // These begin with the type of the result.
        const bool skip_first = name.find("__invoke_impl<") != name.npos ||
            name.starts_with("dunlin::detail::task_frame<") || name.starts_with("dunlin::detail::async_frame<") ||
            name.starts_with("dunlin::detail::deferred_state<");
        std::size_t begin = name.find('<');
        if (begin == name.npos || name.find('(') < begin) return {};
        const std::size_t end = closing(name, begin);
        if (end == name.npos) return {};
        const auto next_argument = [&] {
            std::size_t at = begin + 1;
            while (at < end && name[at] != ',') {
                at = name[at] == '<' || name[at] == '(' || name[at] == '{' ? closing(name, at) + 1 : at + 1;
            }
            return std::min(at, end);
        };
        if (skip_first) begin = std::min(next_argument() + 1, end - 1);
        std::string_view argument = name.substr(begin + 1, next_argument() - begin - 1);
        argument.remove_suffix(argument.size() - 1 - std::min(argument.find_last_not_of(" &"), argument.size() - 1));
        if (argument.find("(*)") != argument.npos || argument.find("(&)") != argument.npos ||
            argument.find("::*)") != argument.npos) {
            return {};
        }
        if (!argument.starts_with("dunlin::detail::")) return argument;
        name = argument;
    }
}

struct frame {
    symbol where;
    part of;
    readable name;

    frame(const void* pc, bool demangle) noexcept : where(find_symbol(reinterpret_cast<std::uintptr_t>(pc) - 1)),
        of(part_of(where.name)) {
        platform::demangled_text full;
        if (demangle && where.name.starts_with("_Z") && where.name.size() <= mangled_max) {
            full = platform::demangled(where.name.data());
        }
        if (full != nullptr) {
            const std::string_view called = of == part::entry ? called_by_entry(full.get()) : std::string_view();
            if (of == part::entry && called.empty()) of = part::runtime;
            name.add_demangled(called.empty() ? full.get() : called);
        } else if (where.name.starts_with("_Z")) {
            add_outline(name, where.name);
        } else {
            name.add(where.name);
        }
    }
};

bool is_allocator(std::string_view name) noexcept {
    for (const std::string_view one : {"malloc"sv, "free"sv, "cfree"sv, "calloc"sv, "realloc"sv, "aligned_alloc"sv,
                                       "posix_memalign"sv, "memalign"sv}) {
        if (name == one) return true;
    }
    for (const std::string_view new_or_delete : {"_Znw"sv, "_Zna"sv, "_Zdl"sv, "_Zda"sv}) {
        if (name.starts_with(new_or_delete)) return true;
    }
    return false;
}

// Was the computation in the C library or the loader, or in another allocator? Not if it was only on its way into
// abort(), or in a wait for a lock of the program.
bool uses_heap(const trace& t) noexcept {
    bool in_libc = false, known = false;
    for (std::size_t i = 0; i < t.size; ++i) {
        const symbol s = find_symbol(reinterpret_cast<std::uintptr_t>(t.pc[i]) - 1);
        if (is_allocator(s.name)) return true;
        if (s.name == "abort" || s.name == "raise" || s.name == "gsignal" || s.name == "pthread_kill") known = true;
        if (i < 2 && (s.name.starts_with("pthread_") || s.name == "syscall")) known = true;
        if (i != 0) continue;
        if (s.name.find("alloc") != s.name.npos || s.name.ends_with("free")) return true;
        for (const std::string_view library : {"libc."sv, "libc-"sv, "ld-"sv}) {
            in_libc = in_libc || s.object.starts_with(library);
        }
    }
    return in_libc && !known;
}

void print(platform::text_writer& out, const frame& f, const void* pc) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(pc);
    out << f.name.text();
    if (const source_line at = find_line(address - 1); at.line != 0) {
        out << (at.exact ? " at " : " near ") << at.file << ':' << at.line;
    } else if (!f.where.object.empty()) {
        out << '+' << reinterpret_cast<const void*>(address - f.where.begin) << " (" << f.where.object << ')';
    }
}

}  // namespace

[[gnu::noinline]] trace capture_trace(std::size_t skip) noexcept {
    trace t;
    collector c{&t, skip + 1};
    _Unwind_Backtrace(collect, &c);
    return t;
}

[[gnu::noinline]] void capture_trace(trace& into) noexcept {
    into.size = 0;
    collector c{&into, 1};
    _Unwind_Backtrace(collect, &c);
}

trace capture_trace(const context& stopped) noexcept {
    trace t;
    collector c{&t, 2};  // collect_here and dunlin_call_above
    dunlin_call_above(&stopped, collect_here, &c);
    return t;
}

void capture_trace_of_sleeper([[maybe_unused]] void* sp, [[maybe_unused]] const void* pc, trace& into) noexcept {
    into.size = 0;
#if defined(__x86_64__)
    // Its frame pointer is not known. A frame that is found by this one has no caller.
    void* nowhere[32] = {};
    const context at{sp, nowhere + 16, const_cast<void*>(pc)};
    collector c{&into, 2};  // collect_here and dunlin_call_above
    dunlin_call_above(&at, collect_here, &c);
#endif
}

[[gnu::noinline]] void capture_deep_trace(deep_trace& into) noexcept {
    into.inner.size = 0;
    into.frames = 0;
    deep_collector c{&into, true, deepest};
    _Unwind_Backtrace(collect_deep, &c);
}

namespace {

struct frame_printer {
    platform::text_writer& out;
    bool hide_runtime;
    bool demangle;
    bool shown = false;
    readable last = {};

    // False: the frame is not shown.
    bool print(const void* pc, std::size_t number) noexcept {
        const frame f(pc, demangle);
        // An entry under the name of the function that it calls, which has just been printed if it was not inlined.
        const bool repeats = f.of == part::entry && f.name.text() == last.text();
        if (hide_runtime && (f.of == part::runtime || repeats)) return false;
        shown = true;
        last = f.name;
        out << "    #" << static_cast<std::uint64_t>(number) << ' ' << pc << ' ';
        stack::print(out, f, pc);
        out << '\n';
        return true;
    }

    // True: all frames were hidden, and are not from now on.
    bool show_hidden_instead() noexcept {
        if (shown || !hide_runtime) return false;
        hide_runtime = false;
        return true;
    }
};

// A function that stands in the stack again and again. It may have several calls that lead on.
struct repeated {
    std::uintptr_t begin;
    const void* pc;
    std::uint64_t times;
};

void print_recursion(platform::text_writer& out, const deep_trace& t, bool demangle) noexcept {
    constexpr std::size_t shown_max = 6, few = 8;
    repeated found[trace_frames_max];
    std::size_t count = 0;
    for (std::size_t i = 0; i < t.inner.size; ++i) {
        if (t.times[i] < few) continue;
        const std::uintptr_t begin = find_symbol(reinterpret_cast<std::uintptr_t>(t.inner.pc[i]) - 1).begin;
        repeated* const known = std::find_if(found, found + count, [=](const repeated& r) { return r.begin == begin; });
        if (known == found + count) found[count++] = {begin, t.inner.pc[i], 0};
        known->times += t.times[i];
    }
    std::sort(found, found + count, [](const repeated& a, const repeated& b) { return a.times > b.times; });
    std::uint64_t together = 0;
    for (std::size_t i = 0; i < count; ++i) together += found[i].times;
    if (count == 0 || together < t.frames / 2) return;
    out << "    recursion: ";
    for (std::size_t i = 0; i < count; ++i) {
        if (i == shown_max) {
            out << ", ...";
            break;
        }
        out << (i != 0 ? ", " : "") << frame(found[i].pc, demangle).name.text() << " x " << found[i].times;
    }
    out << '\n';
}

}  // namespace

void print_deep_trace(platform::text_writer& out, const deep_trace& t, bool hide_runtime) noexcept {
    const int kept = errno;
    // ThreadSanitizer ends a program that allocates in a signal handler.
    frame_printer p{out, hide_runtime, !stack::thread_sanitizing && !uses_heap(t.inner)};
    print_recursion(out, t, p.demangle);
    const bool all = t.frames <= t.inner.size;
    do {
        std::size_t number = 0;
        for (std::size_t i = 0; i < (all ? t.inner.size : deep_trace::ends); ++i) {
            number += p.print(t.inner.pc[i], number);
        }
        if (all) continue;
        out << "    ... " << static_cast<std::uint64_t>(t.frames - 2 * deep_trace::ends) << " frames\n";
        for (std::size_t i = t.frames - deep_trace::ends; i < t.frames; ++i) p.print(t.outer[i % deep_trace::ends], i);
    } while (p.show_hidden_instead());
    errno = kept;
}

void print_trace(platform::text_writer& out, const trace& t, bool hide_runtime) noexcept {
    const int kept = errno;
    frame_printer p{out, hide_runtime, !uses_heap(t)};
    do {
        std::size_t number = 0;
        for (std::size_t i = 0; i < t.size; ++i) number += p.print(t.pc[i], number);
    } while (p.show_hidden_instead());
    errno = kept;
}

bool print_first_of_program(platform::text_writer& out, const trace& t) noexcept {
    const int kept = errno;
    bool found = false;
    const bool demangle = !uses_heap(t);
    for (std::size_t i = 0; i < t.size && !found; ++i) {
        const frame f(t.pc[i], demangle);
        if (f.of == part::runtime || (f.of == part::program && of_library(f.where.name))) continue;
        print(out, f, t.pc[i]);
        found = true;
    }
    errno = kept;
    return found;
}

std::size_t frames_of_library(const trace& t) noexcept {
    for (std::size_t i = 0; i < t.size; ++i) {
        const std::string_view name = find_symbol(reinterpret_cast<std::uintptr_t>(t.pc[i]) - 1).name;
        const part p = part_of(name);
        if (p == part::entry || (p == part::program && !of_library(name))) return i;
    }
    return 0;
}

void print_symbol(platform::text_writer& out, const void* pc, bool demangle) noexcept {
    const int kept = errno;
    print(out, frame(pc, demangle), pc);
    errno = kept;
}

}  // namespace dunlin::stack
