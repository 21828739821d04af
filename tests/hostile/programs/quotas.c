/* Programs that take all of what the kernel hands out per process or per user. */
#include "attempt.h"
#include <fcntl.h>
#include <mqueue.h>
#include <sys/inotify.h>

#define MOST 200000L

static long descriptors(void) {
    return dup(0);
}

static long inotify(void) {
    return inotify_init();
}

static long queues;

static const char *queue_name(long number) {
    static char name[32];
    snprintf(name, sizeof name, "/hostile-%ld", number);
    return name;
}

static long mqueue(void) {
    mqd_t queue = mq_open(queue_name(queues), O_CREAT | O_RDWR, 0600, NULL);
    queues += queue >= 0;
    return queue;
}

static long queued_signal(void) {
    union sigval value = {0};
    return sigqueue(getpid(), SIGRTMAX, value);
}

/* Counts in bytes: beyond the quota of the user a new pipe gets less than the usual 64 KiB. */
static long pipe_of_usual_size(void) {
    int ends[2];
    if (pipe(ends) < 0)
        return -1;
    if (fcntl(ends[0], F_GETPIPE_SZ) < 65536) {
        errno = ENOSPC;
        return -1;
    }
    fcntl(ends[0], F_SETPIPE_SZ, 1 << 20);
    return 0;
}

static long terminal(void) {
    return posix_openpt(O_RDWR | O_NOCTTY);
}

static const struct {
    const char *name;
    long (*take)(void);
} quotas[] = {
    {"descriptors", descriptors}, {"inotify", inotify},          {"mqueue", mqueue},
    {"signals", queued_signal},   {"pipes", pipe_of_usual_size}, {"terminals", terminal},
};

static void block_signal(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGRTMAX);
    sigprocmask(SIG_BLOCK, &signals, NULL);
}

/* quotas NAME [hold|leave]: hold what was taken for ever, or leave the queues behind. */
int main(int argc, char **argv) {
    block_signal();
    for (size_t i = 0; argc > 1 && i < sizeof quotas / sizeof *quotas; i++) {
        if (strcmp(argv[1], quotas[i].name) != 0)
            continue;
        long taken = 0, last = 0;
        while (taken < MOST && (last = quotas[i].take()) >= 0)
            taken++;
        char what[64];
        snprintf(what, sizeof what, "%s taken", argv[1]);
        report(argv[1], last);
        count(what, taken);
        if (argc > 2 && strcmp(argv[2], "hold") == 0) {
            say("holding", "ok");
            for (;;)
                pause();
        }
        for (long number = 0; argc == 2 && number < queues; number++)
            mq_unlink(queue_name(number));
        return 0;
    }
    return 64;
}
