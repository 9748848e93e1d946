/* bench.h - what the workloads of the C peer have in common. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct settings {
    int procs;
    int n; /* of grow-...: how many */
    bool quick;
};

/* One metric, as a line of JSON (bench/registry.h). */
void add(const char* metric, double value, const char* unit);
_Noreturn void fail(const char* text); /* with errno's, if there is one */

/* A socket that listens on a free port of 127.0.0.1. */
int listen_on_loopback(int* port);
/* Runs bench/load's program with these words behind its kind and port, passes its metrics on. Returns at its end. */
void run_load(const char* kind, int port, const char* const* words);

/* Echoes under a load of this kind. */
void echo(const struct settings* s, const char* kind, int connections);
void pipe_wake(const struct settings* s);
