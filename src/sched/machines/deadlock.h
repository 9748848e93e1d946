// deadlock.h - can any goroutine ever run again?
#pragma once

namespace dunlin::inline v0_1::sched {

// Called under the scheduler lock whenever a machine goes to sleep: reports and ends the process if nothing can ever
// happen any more. Concludes nothing while the process has threads that do not belong to the
// runtime: one of them may still wake a goroutine.
void check_for_deadlock() noexcept;

}  // namespace dunlin::sched
