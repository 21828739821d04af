/* Programs that multiply, will not end, or stay behind. */
#include "attempt.h"
#include <pthread.h>
#include <sys/wait.h>

#define SMALL_STACK (64 * 1024)

static void ignore_signals(void) {
    for (int number = 1; number < 65; number++)
        signal(number, SIG_IGN);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
}

static void *spin(void *unused) {
    (void)unused;
    for (;;) {
    }
    return NULL;
}

static void *wait_forever(void *unused) {
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

static int start_thread(void *(*body)(void *)) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, SMALL_STACK);
    return pthread_create(&thread, &attributes, body, NULL);
}

static void spinning_threads(void) {
    for (int i = 0; i < 60; i++)
        if (start_thread(spin) != 0)
            exit(2);
    say("threads", "ok");
    wait_forever(NULL);
}

static void waiting_threads(void) {
    long started = 0;
    int error;
    while ((error = start_thread(wait_forever)) == 0)
        started++;
    say("thread", strerrorname_np(error));
    count("threads", started);
    exit(1);
}

static void fork_bomb(void) {
    for (;;)
        fork();
}

static void deaf_fork_bomb(void) {
    ignore_signals();
    fork_bomb();
}

static void setsid_bomb(void) {
    ignore_signals();
    for (;;)
        if (fork() == 0)
            setsid();
}

/* Each process lives only until it has a successor: whoever looks finds a pid that is gone. */
static void hand_on_forever(void) {
    ignore_signals();
    setsid();
    for (;;)
        if (fork() > 0)
            _exit(0);
}

static void chain(void) {
    if (fork() == 0)
        hand_on_forever();
    wait_forever(NULL);
}

static void loose_chain(void) {
    if (fork() == 0)
        hand_on_forever();
}

static void exec_storm(void) {
    for (;;)
        if (vfork() == 0) {
            execl("/proc/self/exe", "processes", "exec-storm", NULL);
            _exit(127);
        }
}

static void loose_daemon(void) {
    if (fork() > 0)
        exit(0);
    setsid();
    if (fork() > 0)
        _exit(0);
    ignore_signals();
    wait_forever(NULL);
}

static void stop_all(void) {
    kill(0, SIGSTOP);
    wait_forever(NULL);
}

int main(int argc, char **argv) {
    (void)argc;
    static const struct mode modes[] = {
        {"spinning-threads", spinning_threads},
        {"waiting-threads", waiting_threads},
        {"fork-bomb", fork_bomb},
        {"deaf-fork-bomb", deaf_fork_bomb},
        {"setsid-bomb", setsid_bomb},
        {"chain", chain},
        {"loose-chain", loose_chain},
        {"exec-storm", exec_storm},
        {"loose-daemon", loose_daemon},
        {"stop-all", stop_all},
        {NULL, NULL},
    };
    return run_mode(modes, argv);
}
