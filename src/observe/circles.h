// circles.h - finds goroutines that wait for each other.
#pragma once

namespace dunlin::inline v0_1::observe {

// Reports goroutines that wait for each other in a circle, for mutexes and for their ends; each circle once
// (wait_graph.h). Stops the world.
void report_circles() noexcept;

}  // namespace dunlin::observe
