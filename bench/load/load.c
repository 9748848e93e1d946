/* net_load KIND PORT [OPTIONS]: the load for the network benchmarks, the same for the servers of all languages.
 *
 * A benchmark's program opens its server on 127.0.0.1 and starts this one as its child. It binds its parent to the first CPU and itself to the second, does
 * its work, checks every reply, and prints its metrics. The time that the server used on its CPU is read by the kernel's clock of that process, so it covers
 * the same requests in every language.
 */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void die(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("net_load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void tell(const char* metric, double value, const char* unit) {
    printf("%s %.6g %s\n", metric, value, unit);
    fflush(stdout);
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) die("clock: %s", strerror(errno));
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

int64_t server_cpu_ns(const struct options* o) {
    clockid_t clock;
    const int error = clock_getcpuclockid(o->server_pid, &clock);
    if (error != 0) die("CPU clock of process %d: %s", (int)o->server_pid, strerror(error));
    return clock_ns(clock);
}

int connect_to(const struct options* o, int from) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket: %s", strerror(errno));
    if (from != 0) {
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + (uint32_t)from)};
        const int on = 1;
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        if (bind(fd, (struct sockaddr*)&own, sizeof own) != 0) die("bind to 127.0.0.%d: %s", from, strerror(errno));
    }
    if (connect(fd, (const struct sockaddr*)&o->server, sizeof o->server) != 0) die("connect: %s", strerror(errno));
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

void make_nonblocking(int fd) {
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) die("O_NONBLOCK: %s", strerror(errno));
}

int64_t raise_descriptor_limit(int64_t wanted) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if ((int64_t)limit.rlim_cur >= wanted) return wanted;
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || (int64_t)limit.rlim_max > wanted ? (rlim_t)wanted : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    return (int64_t)limit.rlim_cur;
}

int possible_connections(const struct options* o) {
    enum { spare_descriptors = 64 };
    const int64_t own = raise_descriptor_limit(o->connections + spare_descriptors);
    struct rlimit limit;
    if (prlimit(o->server_pid, RLIMIT_NOFILE, NULL, &limit) != 0) die("limits of the server: %s", strerror(errno));
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        prlimit(o->server_pid, RLIMIT_NOFILE, &limit, NULL);
    }
    const int64_t least = (int64_t)limit.rlim_cur < own ? (int64_t)limit.rlim_cur : own;
    return least - spare_descriptors < o->connections ? (int)least - spare_descriptors : o->connections;
}

void fill_message(unsigned char* message, uint64_t number) {
    uint64_t word = number;
    for (size_t at = 0; at < message_size; at += sizeof word) {
        memcpy(message + at, &word, sizeof word);
        word = (word + number) * 0x9e3779b97f4a7c15u + 1;
    }
}

void open_dialogue(struct dialogue* d, const struct options* o, int i, int count, int poll, uint32_t events, void* data) {
    d->fd = connect_to(o, count > ports_min ? 1 + i % load_addresses : 0);
    make_nonblocking(d->fd);
    struct epoll_event wanted = {.events = events, .data.ptr = data};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, d->fd, &wanted) != 0) die("epoll_ctl: %s", strerror(errno));
}

void send_message(struct dialogue* d, const unsigned char* message) {
    d->received = 0;
    d->waits = true;
    const ssize_t n = send(d->fd, message, message_size, MSG_NOSIGNAL);
    if (n != message_size) die("a message could not be sent: %s", n < 0 ? strerror(errno) : "the socket is full");
}

bool receive_reply(struct dialogue* d, const unsigned char* expected) {
    unsigned char reply[message_size * 2];
    const ssize_t n = recv(d->fd, reply, sizeof reply, 0);
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) return false;
        die("a reply could not be read: %s", strerror(errno));
    }
    if (n == 0) die("the server has closed a connection%s", d->waits ? " that waits for a reply" : "");
    if (!d->waits || n > message_size - d->received) die("bytes that were not asked for: answered twice?");
    if (memcmp(reply, expected + d->received, (size_t)n) != 0) {
        uint64_t number;
        memcpy(&number, expected, sizeof number);
        die("a wrong reply to message %llu", (unsigned long long)number);
    }
    d->received += (int)n;
    if (d->received < message_size) return false;
    d->waits = false;
    return true;
}

void close_dialogue(struct dialogue* d, int poll) {
    char more;
    ssize_t n;
    shutdown(d->fd, SHUT_WR);
    struct epoll_event event;
    while ((n = recv(d->fd, &more, 1, 0)) < 0 && errno == EAGAIN) {
        if (epoll_wait(poll, &event, 1, 10000) <= 0) die("the server does not close its end");
    }
    if (n != 0) die("a byte after the last reply: answered twice?");
    close(d->fd);
}

static int bucket_of(int64_t ns) {
    if (ns < 1 << bucket_bits) return ns < 0 ? 0 : (int)ns;
    const int shift = 63 - __builtin_clzll((unsigned long long)ns) - bucket_bits;
    return (shift << bucket_bits) + (int)(ns >> shift);
}

static double value_of(int bucket) {
    if (bucket < 2 << bucket_bits) return bucket;
    const int shift = (bucket >> bucket_bits) - 1;
    return ((bucket & ((1 << bucket_bits) - 1)) + (1 << bucket_bits) + 0.5) * (double)((int64_t)1 << shift);
}

void histogram_add(struct histogram* h, int64_t ns) {
    ++h->count[bucket_of(ns)];
    ++h->total;
}

double histogram_percentile_ns(const struct histogram* h, double q) {
    int64_t left = (int64_t)(q * (double)(h->total - 1));
    for (int i = 0; i < buckets; ++i) {
        if (left < h->count[i]) return value_of(i);
        left -= h->count[i];
    }
    return 0;
}

static void bind_thread(pid_t thread, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(thread, sizeof set, &set) != 0 && errno != ESRCH) die("bind to CPU %d: %s", cpu, strerror(errno));
}

/* All threads that the server has now; those to come inherit it. */
static void bind_server(pid_t server, int cpu) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)server);
    DIR* threads = opendir(path);
    if (threads == NULL) die("%s: %s", path, strerror(errno));
    for (struct dirent* entry; (entry = readdir(threads)) != NULL;) {
        if (entry->d_name[0] != '.') bind_thread(atoi(entry->d_name), cpu);
    }
    closedir(threads);
}

static void bind_both(const struct options* o) {
    /* Those CPUs that we may use at all: the server's own set may be smaller already. */
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (cpus < 2) return;
    bind_server(o->server_pid, 0);
    bind_server(o->server_pid, 0); /* threads that began meanwhile */
    bind_thread(0, 1);
}

int main(int argc, char** argv) {
    struct options o = {.server_pid = getppid(), .connections = 64, .seconds = 1, .bind = true};
    if (argc < 3) die("usage: net_load echo|idle|think|http|mixed|open PORT [--connections N] [--requests N] [--seconds S] [--rate N] [--server PID] [--calls] [--free]");
    o.server.sin_family = AF_INET;
    o.server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    o.server.sin_port = htons((uint16_t)atoi(argv[2]));
    for (int i = 3; i < argc; ++i) {
        const char* value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--calls") == 0) {
            o.count_calls = true;
            continue;
        }
        if (strcmp(argv[i], "--free") == 0) {
            o.bind = false;
            continue;
        }
        if (strcmp(argv[i], "--connections") == 0) {
            o.connections = atoi(value);
        } else if (strcmp(argv[i], "--requests") == 0) {
            o.requests = atoll(value);
        } else if (strcmp(argv[i], "--seconds") == 0) {
            o.seconds = atof(value);
        } else if (strcmp(argv[i], "--rate") == 0) {
            o.rate = atof(value);
        } else if (strcmp(argv[i], "--server") == 0) {
            o.server_pid = atoi(value);
        } else {
            die("%s: not understood", argv[i]);
        }
        ++i;
    }
    if (o.bind) bind_both(&o);
    if (strcmp(argv[1], "echo") == 0) return echo_load(&o);
    if (strcmp(argv[1], "idle") == 0) return idle_load(&o);
    if (strcmp(argv[1], "think") == 0) return think_load(&o);
    if (strcmp(argv[1], "http") == 0) return http_load(&o);
    if (strcmp(argv[1], "mixed") == 0) return mixed_load(&o);
    if (strcmp(argv[1], "open") == 0) return open_load(&o);
    die("%s: no such load", argv[1]);
}
