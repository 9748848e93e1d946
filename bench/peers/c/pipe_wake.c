#include "bench.h"
void pipe_wake(const struct settings* s) { (void)s; }
