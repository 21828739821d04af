/* Programs that take memory in every way that counts differently. */
#include "attempt.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MEGABYTE (1L << 20)
#define SMALL (4 * MEGABYTE)
#define SMALL_PROCESSES 110

static char block[MEGABYTE];

static void touch(char *memory, long bytes) {
    if (memory == NULL || memory == MAP_FAILED)
        exit(2);
    memset(memory, 'x', bytes);
}

static void *malloc_forever(void *unused) {
    (void)unused;
    for (;;)
        touch(malloc(MEGABYTE), MEGABYTE);
    return NULL;
}

static void malloc_bomb(void) {
    malloc_forever(NULL);
}

static void thread_bomb(void) {
    pthread_t thread;
    for (int i = 0; i < 8; i++)
        if (pthread_create(&thread, NULL, malloc_forever, NULL) != 0)
            exit(2);
    for (;;)
        pause();
}

static void shared_bomb(void) {
    for (;;)
        touch(mmap(NULL, MEGABYTE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
              MEGABYTE);
}

/* Several, as there is a limit on what a single file takes. */
static void memfd_bomb(void) {
    int file = -1;
    for (int i = 0; i < 600; i++) {
        if (i % 50 == 0)
            file = memfd_create("bomb", 0);
        if (write(file, block, MEGABYTE) < 0) {
            report("memfd", -1);
            exit(1);
        }
    }
    say("memfd", "ok");
}

/* Detached segments belong to no process, so killing one does not free them. */
static void sysv_bomb(void) {
    int segment = -1;
    for (int i = 0; i < 4; i++) {
        segment = shmget(IPC_PRIVATE, 16 * MEGABYTE, IPC_CREAT | 0600);
        if (segment < 0)
            break;
        char *memory = shmat(segment, NULL, 0);
        touch(memory, 16 * MEGABYTE);
        shmdt(memory);
    }
    report("shmget", segment);
    exit(segment < 0);
}

/* A child that does not outlive the command's first process, should the kernel kill that one. */
static pid_t fork_bound(void) {
    pid_t child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

/* The kernel kills the largest process first: small ones, no more killable than others, outlive a
   larger one that did nothing. */
static void be_small(void) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY);
    if (write(file, "0", 1) < 0)
        exit(3);
    touch(malloc(SMALL), SMALL);
    for (;;)
        pause();
}

static void small_processes(void) {
    int started = 0, status = 0;
    for (; started < SMALL_PROCESSES; started++) {
        pid_t child = fork_bound();
        if (child == 0)
            be_small();
        if (child < 0)
            break;
    }
    count("started", started);
    /* None ends by itself. */
    waitpid(-1, &status, 0);
    count("killed by", WTERMSIG(status));
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    exit(1);
}

static void respawning_processes(void) {
    int living = 0;
    for (;;) {
        pid_t child = living < SMALL_PROCESSES ? fork_bound() : -1;
        if (child == 0)
            be_small();
        if (child > 0)
            living++;
        else if (waitpid(-1, NULL, 0) > 0)
            living--;
    }
}

static void set_non_blocking(int descriptor) {
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
}

static void fill(int descriptor) {
    set_non_blocking(descriptor);
    while (write(descriptor, block, 4096) > 0) {
    }
}

static void fill_sockets(void) {
    int pair[2];
    while (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) {
        fill(pair[0]);
        fill(pair[1]);
    }
}

static void fill_pipes(void) {
    int ends[2];
    while (pipe(ends) == 0)
        fill(ends[1]);
}

/* They outlive the command's first process, should the kernel kill that one: it is for the sandbox to
   end them. */
static void in_processes(int wanted, void (*body)(void)) {
    int done[2], started = 0;
    char byte;
    if (pipe(done) < 0)
        exit(2);
    for (; started < wanted; started++) {
        pid_t child = fork();
        if (child == 0) {
            body();
            if (write(done[1], "", 1) < 0)
                _exit(1);
            close(done[1]);
            for (;;)
                pause();
        }
        if (child < 0)
            break;
    }
    close(done[1]);
    int filled = 0;
    while (filled < started && read(done[0], &byte, 1) == 1)
        filled++;
    count("filled", filled);
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    exit(filled < started);
}

static void socket_bomb(void) {
    in_processes(16, fill_sockets);
}

static void pipe_bomb(void) {
    in_processes(20, fill_pipes);
}

static void take(void) {
    long bytes = atol(arguments[0]) * MEGABYTE;
    touch(malloc(bytes), bytes);
    say("taken", "ok");
}

int main(int argc, char **argv) {
    (void)argc;
    static const struct mode modes[] = {
        {"malloc", malloc_bomb},
        {"threads", thread_bomb},
        {"shared", shared_bomb},
        {"memfd", memfd_bomb},
        {"sysv", sysv_bomb},
        {"small", small_processes},
        {"respawning", respawning_processes},
        {"sockets", socket_bomb},
        {"pipes", pipe_bomb},
        {"take", take},
        {NULL, NULL},
    };
    return run_mode(modes, argv);
}
