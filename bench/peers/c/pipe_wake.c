/* pipe_wake.c - how long after a write to a pipe a thread runs that sleeps in epoll_wait for it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

static int ends[2];
static atomic_llong ran_at;

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void* read_pipe(void* unused) {
    (void)unused;
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN};
    if (epoll < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &e) != 0) fail("epoll");
    for (;;) {
        char byte;
        if (epoll_wait(epoll, &e, 1, -1) == 1 && read(ends[0], &byte, 1) == 1) atomic_store(&ran_at, now_ns());
    }
    return NULL;
}

static int ascending(const void* a, const void* b) { return (*(const double*)a > *(const double*)b) - (*(const double*)a < *(const double*)b); }

void pipe_wake(const struct settings* s) {
    const int count = s->quick ? 100 : 1000;
    double* samples_us = calloc((size_t)count, sizeof *samples_us);
    pthread_t reader;
    if (samples_us == NULL || pipe2(ends, O_CLOEXEC) != 0 || pthread_create(&reader, NULL, read_pipe, NULL) != 0) fail("pipe-wake");
    uint64_t random = 1;
    for (int i = 0; i < count; ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        nanosleep(&(struct timespec){.tv_nsec = 200000 + (long)((random >> 33) % 800000)}, NULL);
        atomic_store(&ran_at, 0);
        const long long written_at = now_ns();
        if (write(ends[1], "", 1) != 1) fail("write to a pipe");
        while (atomic_load(&ran_at) == 0) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        samples_us[i] = (double)(atomic_load(&ran_at) - written_at) / 1e3;
    }
    qsort(samples_us, (size_t)count, sizeof *samples_us, ascending);
    add("p50", samples_us[count / 2], "us");
    add("p99", samples_us[count * 99 / 100], "us");
}
