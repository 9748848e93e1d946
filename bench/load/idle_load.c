/* idle_load.c - connections that are opened and do nothing: what each costs the server, and whether a request on one of them is answered.
 *
 * Number     As many as wanted, and as there are descriptors (RLIMIT_NOFILE, which is raised up to its hard limit, here and in the server). They come from several
 *            addresses, 127.0.0.1 to 127.0.0.8, because one has no more than 28,000 ports to one place (net.ipv4.ip_local_port_range).
 * Memory     The server's VmRSS: pages of its own, without page tables and without what the kernel keeps for each socket.
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { requests = 2000 };

static double resident_bytes(pid_t process) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    FILE* status = fopen(path, "r");
    double kilobytes = -1;
    while (status != NULL && fgets(line, sizeof line, status) != NULL) sscanf(line, "VmRSS: %lf", &kilobytes);
    if (status != NULL) fclose(status);
    if (kilobytes < 0) die("%s has no VmRSS", path);
    return kilobytes * 1024;
}

static int64_t request(int fd, uint64_t number) {
    unsigned char message[message_size], reply[message_size];
    fill_message(message, number);
    const int64_t start_ns = now_ns();
    if (send(fd, message, message_size, MSG_NOSIGNAL) != message_size) die("a request could not be sent: %s", strerror(errno));
    const ssize_t n = recv(fd, reply, message_size, MSG_WAITALL);
    if (n != message_size || memcmp(message, reply, message_size) != 0) die("a wrong reply, or none");
    return now_ns() - start_ns;
}

static void settle(void) { nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); }

int idle_load(const struct options* o) {
    const int count = possible_connections(o);
    int* fds = calloc((size_t)count, sizeof *fds);
    if (fds == NULL || count < 2) die("no descriptors");
    /* What the first connection needs once is no cost of each. */
    const int first = connect_to(o, 0);
    request(first, 1);
    settle();
    const double before = resident_bytes(o->server_pid);
    for (int i = 0; i < count; ++i) {
        fds[i] = connect_to(o, 1 + i % load_addresses);
        struct timeval patience = {.tv_sec = 10};
        setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }
    request(fds[count - 1], 2); /* the last one is accepted, so all are */
    settle();
    const double after = resident_bytes(o->server_pid);
    struct histogram* latencies = calloc(1, sizeof *latencies);
    for (uint64_t i = 0; i < requests; ++i) {
        unsigned char random[message_size];
        fill_message(random, i + 1000);
        uint32_t place;
        memcpy(&place, random + 12, sizeof place);
        histogram_add(latencies, request(fds[place % (uint32_t)count], i + 3));
    }
    tell("connections", count, "connections");
    tell("memory", (after - before) / count, "B");
    tell("p50", histogram_percentile_ns(latencies, 0.5) / 1e3, "us");
    tell("p99", histogram_percentile_ns(latencies, 0.99) / 1e3, "us");
    for (int i = 0; i < count; ++i) close(fds[i]);
    return 0;
}
