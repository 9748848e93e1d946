// invoke.cpp - the personality routine of dunlin_invoke(), and forced unwinding.
//
// Problem    A goroutine's exception must be reported where it was thrown, with the frames still there; a catch (...)
//            at the base of the goroutine would have unwound them. And exit_goroutine() must run destructors without
//            being an exception that catch (...) swallows.
// Protocol   Unwinding has two phases. In the search phase the unwinder asks each frame's personality routine whether
//            it has a handler; ours is asked only after every frame of the goroutine has said no. So ours reports
//            there, with nothing unwound. In a forced unwind each frame's clean-ups run, and ours stops it by
//            continuing at dunlin_invoke_landing.
// Swallowed  A catch (...) that does not rethrow ends with __cxa_end_catch(), which deletes the "exception" through its
//            clean-up function. Ours starts the forced unwind again from there. In Go, likewise, recover() does not
//            stop Goexit.
// Source     Itanium C++ ABI: Exception Handling, 1.6 and 2.5.
#include "stack/invoke.h"

#include <cstdint>
#include <cstring>
#include <cxxabi.h>
#include <unwind.h>

#include "platform/check.h"
#include "stack/sanitizer.h"

extern "C" const char dunlin_invoke_landing[];

namespace dunlin::inline v0_1::stack {

namespace {

constexpr char exit_class[8] = {'D', 'N', 'L', 'N', 'E', 'X', 'I', 'T'};

_Unwind_Reason_Code keep_going(int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception*,
    _Unwind_Context*, void*) {
    // Our personality routine ends the walk before the end of the stack; if we get here there was no dunlin_invoke()
    // frame.
    if (actions & _UA_END_OF_STACK) {
        platform::fatal("exit_goroutine(): the stack does not end in a goroutine's entry (was it switched by hand?)");
    }
    return _URC_NO_REASON;
}

[[noreturn]] void unwind(_Unwind_Exception* request);

void swallowed(_Unwind_Reason_Code, _Unwind_Exception* request) { unwind(request); }

void unwind(_Unwind_Exception* request) {
    std::memset(request, 0, sizeof *request);
    std::memcpy(&request->exception_class, exit_class, sizeof exit_class);
    request->exception_cleanup = swallowed;
    before_unwinding();
    _Unwind_ForcedUnwind(request, keep_going, nullptr);
    platform::fatal("exit_goroutine(): the stack cannot be unwound (was something compiled without -fexceptions?)");
}

}  // namespace

void unwind_to_invoke(exit_request& request) {
    static_assert(sizeof request.storage >= sizeof(_Unwind_Exception));
    unwind(reinterpret_cast<_Unwind_Exception*>(request.storage));
}

// Never unwound into except to leave: see the head of this file.
extern "C" [[gnu::visibility("hidden")]] _Unwind_Reason_Code dunlin_goroutine_personality(int version,
    _Unwind_Action actions, _Unwind_Exception_Class,
                                                              _Unwind_Exception* exception, _Unwind_Context* frame) {
    if (version != 1) return _URC_FATAL_PHASE1_ERROR;
    if (actions & _UA_FORCE_UNWIND) {
        // pthread_exit(), or the thread was cancelled: other goroutines run on this thread.
        if (std::memcmp(&exception->exception_class, exit_class, sizeof exit_class) != 0) {
            platform::fatal("pthread_exit() in a goroutine, or its thread was cancelled: end it with exit_goroutine()");
        }
        _Unwind_SetIP(frame, reinterpret_cast<std::uintptr_t>(dunlin_invoke_landing));
        return _URC_INSTALL_CONTEXT;
    }
    if (actions & _UA_SEARCH_PHASE) {
        // so that std::current_exception() works in the report and in a terminate handler
        abi::__cxa_begin_catch(exception);
        dunlin_uncaught_exception();
    }
    return _URC_CONTINUE_UNWIND;
}

}  // namespace dunlin::stack
