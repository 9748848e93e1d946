#include "sched/goroutines/debug_layout.h"

#include <cstddef>

#include "sched/data/all_goroutines.h"
#include "sched/data/types.h"
#include "sched/machines/machine.h"

// offsetof is applied to types that are not standard-layout, too: these compilers know their layout.
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

namespace {

using namespace dunlin;
using sched::goroutine;

constexpr const char* state_texts[] = {
#define DUNLIN_STATE(name, text, ...) text,
    DUNLIN_GOROUTINE_STATES(DUNLIN_STATE)
#undef DUNLIN_STATE
};

constexpr const char* reason_texts[] = {
#define DUNLIN_REASON(name, text, ...) text,
    DUNLIN_WAIT_REASONS(DUNLIN_REASON)
#undef DUNLIN_REASON
};

// What a std::source_location points to, in libstdc++ as in the compilers that fill it.
struct place {
    const char* file;
    const char* function;
    unsigned line, column;
};

constexpr std::uint64_t number(auto value) noexcept { return static_cast<std::uint64_t>(value); }

}  // namespace

#define AT(type, field) {#type "." #field, offsetof(sched::type, field), nullptr}
#define NUMBER(name, value) {name, number(value), nullptr}
#define ADDRESS(name, object) {name, 0, &(object)}
[[gnu::used]] constinit const sched::debug_table dunlin_debug_layout = {
    {'d', 'u', 'n', 'l', 'i', 'n', 'D', 'L'},
    1,
    64,  // entries without a name are unused
    {
        // All goroutine structs: chunks[0 .. chunk_count); the last chunk has only last_used of them.
        ADDRESS("chunks", sched::the_goroutines.at),
        ADDRESS("chunk_count", sched::the_goroutines.count),
        ADDRESS("last_used", sched::the_goroutines.last_used),
        NUMBER("chunk_bytes", sched::goroutine_chunks::chunk_bytes),
        NUMBER("goroutine.bytes", sizeof(goroutine)),
        AT(goroutine, context),
        NUMBER("context.sp", offsetof(stack::context, sp)),
        NUMBER("context.fp", offsetof(stack::context, fp)),
        NUMBER("context.pc", offsetof(stack::context, pc)),
        AT(goroutine, stack),  // the address of a slot; null: not started
        NUMBER("slot.top", offsetof(stack::slot, top)),
        AT(goroutine, state),  // one byte, as are the next three
        AT(goroutine, saved),
        AT(goroutine, reason),
        AT(goroutine, flags),
        AT(goroutine, id),
        AT(goroutine, created_at),  // bit 63 set: the rest is an address of code; else it is the address of a place
        AT(goroutine, waits_at),    // the address of a place, or null
        AT(goroutine, waits_since_ns),
        AT(goroutine, extra),
        NUMBER("flag.in_place", goroutine::in_place),
        NUMBER("flag.wired", goroutine::wired),
        NUMBER("flag.main", goroutine::main),
        NUMBER("extra.name", offsetof(sched::goroutine_extra, name)),
        NUMBER("extra.labels", offsetof(sched::goroutine_extra, labels)),
        NUMBER("string.data", 0),
        NUMBER("string.size", sizeof(void*)),
        NUMBER("string.bytes", sizeof(std::string)),
        NUMBER("place.file", offsetof(place, file)),
        NUMBER("place.function", offsetof(place, function)),
        NUMBER("place.line", offsetof(place, line)),
        // The texts of states and reasons: arrays, indexed by number.
        ADDRESS("state_texts", state_texts),
        NUMBER("states", sizeof(state_texts) / sizeof(char*)),
        NUMBER("state.dead", sched::goroutine_state::dead),
        NUMBER("state.runnable", sched::goroutine_state::runnable),
        NUMBER("state.running", sched::goroutine_state::running),
        NUMBER("state.waiting", sched::goroutine_state::waiting),
        NUMBER("state.preempted", sched::goroutine_state::preempted),
        NUMBER("state.frozen", sched::goroutine_state::frozen),
        ADDRESS("reason_texts", reason_texts),
        NUMBER("reasons", sizeof(reason_texts) / sizeof(char*)),
        NUMBER("reason.in_place_join", sched::wait_reason::in_place_join),
        NUMBER("reason.blocking_call", sched::wait_reason::blocking_call),
        // The threads that run goroutines: a list.
        ADDRESS("machines", sched::the_scheduler.machines),
        AT(machine, all_next),
        AT(machine, current),
        AT(machine, leaving),
        AT(machine, tid),  // four bytes
        AT(machine, id),   // four bytes
        AT(machine, ended),
        AT(machine, in_thread_call),
        AT(machine, p),
        NUMBER("processor.id", offsetof(sched::processor, id)),
        ADDRESS("coarse_now_ns", sched::the_scheduler.coarse_now_ns),
    }};
#undef AT
#undef NUMBER
#undef ADDRESS

// The note (platform/usable.cpp has one of type 1), in a section of its own: a debugger finds sections by their names.
asm(R"(
    .pushsection .note.dunlin.layout, "a", %note
    .balign 4
    .long 7, 4, 2
    .asciz "dunlin"
    .balign 4
    .long dunlin_debug_layout - .
    .popsection
)");
