// process.h - for tests: how the ends of children are learnt.
#pragma once

#include <dunlin/detail/atomic.hpp>


namespace dunlin::inline v0_1::fs {

// False: as on a kernel without pidfd_open. Relaxed: set before children are started.
extern platform::atomic<bool> use_pidfd;

}  // namespace dunlin::fs
