// schedtrace.h - what DUNLIN_DEBUG asks for.
#pragma once

namespace dunlin::inline v0_1::observe {

// Reads DUNLIN_DEBUG=schedtrace=1000,scheddetail=1,dumpsignal=QUIT,dumpformat=json,deadlock. The thread maker's thread
// prints what these ask for, and what the monitor asks for by itself.
void read_debug_settings();
// The address in DUNLIN_DEBUG=page=ADDRESS; null: there is none.
const char* page_setting() noexcept;

}  // namespace dunlin::observe
