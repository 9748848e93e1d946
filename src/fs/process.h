// process.h - for tests: how the end of a child is noticed.
#pragma once

#include <dunlin/detail/atomic.hpp>


namespace dunlin::inline v0_1::fs {

// False: behave as on a kernel without pidfd_open. Relaxed: it is set before children are started.
extern platform::atomic<bool> use_pidfd;

}  // namespace dunlin::fs
