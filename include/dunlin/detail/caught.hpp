// caught.hpp - what a catch (...) around a caller's function does with what it has caught. Not for direct use.
//
// A catch (...) also sees what is no exception, and std::current_exception() is null then: the end of a goroutine by
// exit_goroutine(), and on a plain thread pthread_exit() and pthread_cancel(). These must go on: libc ends the process
// when a catch (...) ends them ("FATAL: exception not rethrown").
#pragma once

#include <dunlin/config.hpp>

#include <exception>

namespace dunlin::inline v0_1::detail {

// Why there is no result although the function has ended without an exception: goroutine_exited; on a plain thread
// std::future_error, broken_promise. src/sync/once.cpp
DUNLIN_API std::exception_ptr no_result() noexcept;

// Only in a catch (...): the exception. What is none goes on.
inline std::exception_ptr caught() {
    std::exception_ptr e = std::current_exception();
    if (e == nullptr) throw;
    return e;
}

// The same for a result that others wait for: they get no_result() if it was no exception.
inline void keep_caught(std::exception_ptr& to) {
    to = std::current_exception();
    if (to != nullptr) return;
    to = no_result();
    throw;
}

}  // namespace dunlin::inline v0_1::detail
