/* http_load.c - wrk (github.com/wg/wrk) with one thread, and the server's CPU time beside what it says. */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A server that is a process of its own may need a moment to listen. */
static void wait_for_server(const struct options* o) {
    for (int i = 0; i < 500; ++i) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int failed = connect(fd, (const struct sockaddr*)&o->server, sizeof o->server);
        close(fd);
        if (failed == 0) return;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    die("no server listens on port %d", ntohs(o->server.sin_port));
}

int http_load(const struct options* o) {
    wait_for_server(o);
    char command[128], line[256];
    snprintf(command, sizeof command, "exec wrk -t1 -c%d -d%gs http://127.0.0.1:%d/ 2>&1", o->connections, o->seconds, ntohs(o->server.sin_port));
    const int64_t start_cpu_ns = server_cpu_ns(o);
    FILE* out = popen(command, "r");
    double rate = 0, requests = 0;
    while (out != NULL && fgets(line, sizeof line, out) != NULL) {
        if (strstr(line, "Socket errors") != NULL || strstr(line, "Non-2xx") != NULL) die("wrk: %s", line);
        sscanf(line, " %lf requests in", &requests);
        sscanf(line, "Requests/sec: %lf", &rate);
    }
    if (out == NULL || pclose(out) != 0 || rate == 0 || requests == 0) die("wrk has not worked (Debian: apt-get install wrk)");
    tell("time", 1e6 / rate, "us");
    tell("cpu", (double)(server_cpu_ns(o) - start_cpu_ns) / 1e3 / requests, "us");
    return 0;
}
