#include "explorer/carried.h"

#include <cstring>
#include <sys/mman.h>

#include "platform/check.h"
#include "sched/data/current.h"
#include "stack/exception_state.h"

namespace dunlin::inline v0_1::explorer {

namespace {

constexpr std::size_t stack_bytes = 256 << 10;

std::vector<thread_variable>& variables() {
    static std::vector<thread_variable> all{
        {[]() noexcept -> void* { return &dunlin_current_machine; }, sizeof dunlin_current_machine},
        {[]() noexcept -> void* { return stack::thread_exception_state(); }, sizeof(void*) + sizeof(unsigned)},
    };
    return all;
}

void swap_variables(carried& from, carried& to) noexcept {
    if (from.variables.empty()) from.variables.resize(to.variables.size());
    if (to.variables.empty()) to.variables.resize(from.variables.size());
    std::size_t at = 0;
    for (const thread_variable& v : variables()) {
        void* const address = v.address();
        std::memcpy(from.variables.data() + at, address, v.size);
        std::memcpy(address, to.variables.data() + at, v.size);
        at += v.size;
    }
}

}  // namespace

void add_thread_variable(thread_variable variable) { variables().push_back(variable); }

std::byte* make_stack() noexcept {
    void* p = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    DUNLIN_CHECK(p != MAP_FAILED, "no memory for the stack of a virtual thread");
    mprotect(p, 4096, PROT_NONE);
    return static_cast<std::byte*>(p);
}

void free_stack(std::byte* stack) noexcept { munmap(stack, stack_bytes); }

void begin_at(carried& t, void (*entry)()) {
    t.context = stack::make_context(t.stack + stack_bytes - 64, entry);
    std::size_t bytes = 0;
    for (const thread_variable& v : variables()) bytes += v.size;
    t.variables.resize(bytes);
}

[[gnu::noinline]] void change_over(carried& from, carried& to) noexcept {
    swap_variables(from, to);
    stack::switch_context(&from.context, &to.context);
}

[[gnu::noinline]] void leave_for(carried& from, carried& to) noexcept {
    swap_variables(from, to);
    stack::jump_context(&to.context);
}

}  // namespace dunlin::explorer
