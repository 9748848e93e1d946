// extra.h - what only few goroutines have: a name, labels, local values (goroutine_extra of types.h).
#pragma once

#include <string_view>

#include "sched/data/types.h"

namespace dunlin::inline v0_1::sched {

// g's extra part, which is made if there is none. Only before g starts: a running goroutine changes its own inside the
// runtime, since dumps look at it. Throws std::bad_alloc.
goroutine_extra& extra_of(goroutine* g);
// Makes the extra part of the current goroutine, if it has none. Throws std::bad_alloc.
void make_extra_of_current();
// Before the goroutine starts (independent.h).
void set_independent(goroutine_extra& extra, bool yes) noexcept;
// The goroutine's function has ended: destroys its local values, and counts it off if it is independent. Outside the
// runtime.
void end_extra(goroutine_extra& extra) noexcept;
// When the struct goes back to the pool, perhaps without having been started. Null: nothing.
void dispose_of(goroutine_extra* extra) noexcept;
// Destroys the values in reverse order of construction, until none is left: destructors may make new ones. Outside the
// runtime.
void destroy_local_values(local_values& list) noexcept;
// Throws std::bad_alloc. Does nothing on a plain thread.
void name_current_goroutine(std::string_view name);

}  // namespace dunlin::sched
