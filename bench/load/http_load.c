#include "load.h"
int http_load(const struct options* o) { (void)o; return 1; }
