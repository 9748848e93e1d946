#include "stack/exception_state.h"

#include <cxxabi.h>

namespace dunlin::inline v0_1::stack {

// The layout is fixed by the ABI (section 2.2.2): two words, which is all that is moved.
[[gnu::noinline]] exception_state* thread_exception_state() noexcept {
    return reinterpret_cast<exception_state*>(abi::__cxa_get_globals());
}

}  // namespace dunlin::stack
