/* load.h - what the kinds of load have in common: who runs where, the clocks, and how a result is told. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct options {
    struct sockaddr_in server;
    pid_t server_pid;
    int connections;
    int64_t requests; /* 0: as many as there is time for */
    double seconds;
    double rate;      /* of requests, per second */
    bool count_calls; /* the server's system calls, with strace */
    bool bind;        /* the server to the first CPU, the load to the second */
};

int echo_load(const struct options* o);
int idle_load(const struct options* o);
int http_load(const struct options* o);
int think_load(const struct options* o);
int mixed_load(const struct options* o);
int open_load(const struct options* o);

_Noreturn void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* One metric, as a line "NAME VALUE UNIT" that the server's program passes on. */
void tell(const char* metric, double value, const char* unit);

int64_t now_ns(void);
/* User and system time of all threads of the server since it began. */
int64_t server_cpu_ns(const struct options* o);

/* A connected socket, from the address 127.0.0.`from` (0: any), blocking, with TCP_NODELAY. */
int connect_to(const struct options* o, int from);
void make_nonblocking(int fd);
/* As many descriptors as we are allowed; how many that is. */
int64_t raise_descriptor_limit(int64_t wanted);
/* As many connections as are wanted, or as there may be descriptors here and in the server, whose limit is raised. */
int possible_connections(const struct options* o);
/* More connections than one address has ports (28,000) come from 127.0.0.1 to 127.0.0.8. */
enum { load_addresses = 8,
    ports_min = 20000 };

/* The bytes of message number `number`: the number, and what follows from it. */
enum { message_size = 64 };
void fill_message(unsigned char* message, uint64_t number);

/* A connection on which one message at a time is under way, and whose replies are compared byte by byte. */
struct dialogue {
    int fd;
    int received; /* bytes of the reply so far */
    bool waits;
};
/* Number `i` of `count` to the server, in `poll` with these events, for `data`. */
void open_dialogue(
    struct dialogue* d, const struct options* o, int i, int count, int poll, uint32_t events, void* data);
void send_message(struct dialogue* d, const unsigned char* message);
/* Reads what is there. True: the reply, which must be these bytes, is complete. */
bool receive_reply(struct dialogue* d, const unsigned char* expected);
/* Closes it in one direction and reads up to its end: nothing may follow the last reply. */
void close_dialogue(struct dialogue* d, int poll);

/* Latencies in buckets of 1/32 of their size. */
enum { bucket_bits = 5,
    buckets = 64 << bucket_bits };
struct histogram {
    int64_t count[buckets];
    int64_t total;
};
void histogram_add(struct histogram* h, int64_t ns);
double histogram_percentile_ns(const struct histogram* h, double q);
