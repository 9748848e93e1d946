// cpu_profile.h - which threads a CPU profile looks at.
#pragma once

namespace dunlin::inline v0_1::observe {

// A thread that runs goroutines begins or ends; called on that thread.
void profile_machine_thread(bool begins) noexcept;

}  // namespace dunlin::observe
