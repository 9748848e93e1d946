#include "sched/data/types.h"

#include "sched/data/all_goroutines.h"
#include "sched/data/hooks.h"

namespace dunlin::inline v0_1::sched {

constinit scheduler the_scheduler;
constinit goroutine_chunks the_goroutines;
constinit upward_hooks hooks;

namespace {

template <machine* machine_sleeping::*next, machine** machine_sleeping::*link>
void insert(machine*& first, machine* m) noexcept {
    m->*next = first;
    m->*link = &first;
    if (first != nullptr) first->*link = &(m->*next);
    first = m;
}

template <machine* machine_sleeping::*next, machine** machine_sleeping::*link>
void unlink(machine* m) noexcept {
    *(m->*link) = m->*next;
    if (m->*next != nullptr) (m->*next)->*link = m->*link;
    m->*next = nullptr;
}

}  // namespace

void idle_machine_list::push(machine* m) noexcept {
    insert<&machine_sleeping::idle_next, &machine_sleeping::idle_link>(newest, m);
    insert<&machine_sleeping::same_cpu_next,
        &machine_sleeping::same_cpu_link>(newest_on[static_cast<unsigned>(m->slept_on_cpu) % cpus], m);
}

void idle_machine_list::remove(machine* m) noexcept {
    unlink<&machine_sleeping::idle_next, &machine_sleeping::idle_link>(m);
    unlink<&machine_sleeping::same_cpu_next, &machine_sleeping::same_cpu_link>(m);
}

void machine_list::push_back(machine* m) noexcept {
    m->idle_next = nullptr;
    (tail != nullptr ? tail->idle_next : head) = m;
    tail = m;
    ++size;
}

void machine_list::push_front(machine* m) noexcept {
    m->idle_next = head;
    head = m;
    if (tail == nullptr) tail = m;
    ++size;
}

machine* machine_list::pop_front() noexcept {
    machine* m = head;
    if (m == nullptr) return nullptr;
    head = m->idle_next;
    if (head == nullptr) tail = nullptr;
    m->idle_next = nullptr;
    --size;
    return m;
}

}  // namespace dunlin::sched
