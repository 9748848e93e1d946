// annotations.h - which lock guards what, in attributes that clang checks (-Wthread-safety, in each build by clang).
//
// A function that touches something guarded takes its lock, or begins with assert_held(): clang then knows that the
// lock is held, and checking builds (lock_check.h) verify it.
#pragma once

#if defined(__clang__)
#define DUNLIN_ANNOTATION(what) __attribute__((what))
#else
#define DUNLIN_ANNOTATION(what)
#endif

#define DUNLIN_LOCK_TYPE DUNLIN_ANNOTATION(capability("lock"))
#define DUNLIN_GUARDED_BY(lock) DUNLIN_ANNOTATION(guarded_by(lock))
#define DUNLIN_ACQUIRES(...) DUNLIN_ANNOTATION(acquire_capability(__VA_ARGS__))
#define DUNLIN_TRY_ACQUIRES(value) DUNLIN_ANNOTATION(try_acquire_capability(value))
#define DUNLIN_RELEASES(...) DUNLIN_ANNOTATION(release_capability(__VA_ARGS__))
#define DUNLIN_ASSERTS_HELD(...) DUNLIN_ANNOTATION(assert_capability(__VA_ARGS__))
// For what clang cannot follow: each use says why.
#define DUNLIN_NOT_ANALYSED DUNLIN_ANNOTATION(no_thread_safety_analysis)
