/* c_bench NAME [--procs N] [--n N] [--quick]: servers and loops straight on the system's calls: what any
 * runtime's network costs is measured by them.
 *
 * --procs is how many threads echo; the others have one.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

static const char* workload_name;
static int procs = 1;

void fail(const char* text) {
    fprintf(stderr, "c_bench: %s%s%s\n", text, errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : "");
    exit(1);
}

void add(const char* metric, double value, const char* unit) {
    printf("{\"workload\":\"%s\",\"metric\":\"%s\",\"peer\":\"c\",\"procs\":%d,\"value\":%.6g,\"unit\":\"%s\"}\n", workload_name, metric, procs, value, unit);
}

int listen_on_loopback(int* port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof own;
    if (fd < 0 || bind(fd, (struct sockaddr*)&own, size) != 0 || listen(fd, 4096) != 0 || getsockname(fd, (struct sockaddr*)&own, &size) != 0) fail("listen");
    *port = ntohs(own.sin_port);
    return fd;
}

void run_load(const char* kind, int port, const char* const* words) {
    const char* arguments[16] = {getenv("DUNLIN_BENCH_LOAD"), kind};
    if (arguments[0] == NULL) arguments[0] = "build/bench-peers/net_load";
    char port_text[16];
    snprintf(port_text, sizeof port_text, "%d", port);
    arguments[2] = port_text;
    for (int i = 0; words[i] != NULL && i < 12; ++i) arguments[3 + i] = words[i];
    int ends[2];
    if (pipe(ends) != 0) fail("pipe");
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execv(arguments[0], (char**)arguments);
        perror(arguments[0]);
        _exit(127);
    }
    close(ends[1]);
    FILE* lines = fdopen(ends[0], "r");
    char metric[32], unit[32];
    double value;
    while (fscanf(lines, "%31s %lf %31s", metric, &value, unit) == 3) add(metric, value, unit);
    fclose(lines);
    int status = 0;
    waitpid(child, &status, 0);
    errno = 0;
    if (status != 0) fail("the load has failed");
}

static void echo_64(const struct settings* s) { echo(s, "echo", 64); }
static void echo_1000(const struct settings* s) { echo(s, "echo", 1000); }
static void echo_think(const struct settings* s) { echo(s, "think", s->quick ? 1000 : 10000); }
static void grow_echo(const struct settings* s) { echo(s, "echo", s->n); }

int main(int argc, char** argv) {
    static const struct {
        const char* name;
        void (*run)(const struct settings*);
    } all[] = {{"echo-64", echo_64}, {"echo-1000", echo_1000}, {"echo-think", echo_think}, {"grow-echo", grow_echo}, {"pipe-wake", pipe_wake}};
    struct settings s = {.procs = 1};
    void (*run)(const struct settings*) = NULL;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--list") == 0) {
            for (size_t w = 0; w < sizeof all / sizeof all[0]; ++w) puts(all[w].name);
            return 0;
        }
        if (strcmp(argv[i], "--quick") == 0) s.quick = true;
        if (strcmp(argv[i], "--procs") == 0 && i + 1 < argc) procs = s.procs = atoi(argv[++i]);
        if (strcmp(argv[i], "--n") == 0 && i + 1 < argc) s.n = atoi(argv[++i]);
        for (size_t w = 0; w < sizeof all / sizeof all[0]; ++w) {
            if (strcmp(argv[i], all[w].name) == 0) {
                workload_name = all[w].name;
                run = all[w].run;
            }
        }
    }
    if (run == NULL) {
        fputs("usage: c_bench NAME [--procs N] [--n N] [--quick] | --list\n", stderr);
        return 1;
    }
    run(&s);
    return 0;
}
