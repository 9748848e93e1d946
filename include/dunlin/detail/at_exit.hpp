// at_exit.hpp - what is done when a goroutine or a plain thread has ended. The ..._at_thread_exit() of the standard are
// built on it; not for direct use.
#pragma once

#include <dunlin/config.hpp>

namespace dunlin::inline v0_1::detail {

// Calls act(object) when the calling goroutine has ended, after its goroutine_local values are destroyed; on a plain
// thread, after its thread_local objects and these values are destroyed; for the thread that calls exit(), in an
// atexit() handler. The order is that of the calls. Throws std::bad_alloc; then nothing has changed.
// src/sync/goroutine_local.cpp
DUNLIN_API void call_at_exit(void* object, void (*act)(void*) noexcept);
// The same for the last act of a goroutine's function: calls act at once if nothing has to be destroyed first, or if
// there is no memory.
DUNLIN_API void call_at_exit_or_now(void* object, void (*act)(void*) noexcept) noexcept;

}  // namespace dunlin::detail
