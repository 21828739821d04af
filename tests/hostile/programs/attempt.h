/* One line per attempt: what was tried, and `ok` or the name of the error. */
#ifndef ATTEMPT_H
#define ATTEMPT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline void say(const char *what, const char *result) {
    printf("%s: %s\n", what, result);
    fflush(stdout);
}

static inline void count(const char *what, long number) {
    printf("%s: %ld\n", what, number);
    fflush(stdout);
}

/* `result` is what a system call returned: negative means that errno tells why. */
static inline void report(const char *what, long result) {
    say(what, result < 0 ? strerrorname_np(errno) : "ok");
}

/* What follows the mode on the command line. */
static char **arguments;

struct mode {
    const char *name;
    void (*run)(void);
};

static inline int run_mode(const struct mode *modes, char **argv) {
    for (; modes->name; modes++)
        if (argv[1] && strcmp(argv[1], modes->name) == 0) {
            arguments = argv + 2;
            modes->run();
            return 0;
        }
    fprintf(stderr, "no such mode\n");
    return 64;
}

#endif
