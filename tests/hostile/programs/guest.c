/* Attacks on the guest, which is PID 1 and has the same uid. */
#include "attempt.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define GUEST 1
#define PROCESS_MADVISE 440
#define PIDFD_OPEN 434
#define PIDFD_SEND_SIGNAL 424
#define PIDFD_GETFD 438
#define COLD 20
#define SCHED_IDLE_POLICY 5
#define IDLE_IO (3 << 13)

#define MOST_THREADS 16

static int list_threads(int *threads) {
    int found = 0;
    DIR *directory = opendir("/proc/1/task");
    for (struct dirent *entry; found < MOST_THREADS && (entry = readdir(directory));)
        if (atoi(entry->d_name) > 0)
            threads[found++] = atoi(entry->d_name);
    closedir(directory);
    return found;
}

static void send_signals(void) {
    union sigval value = {0};
    int threads[MOST_THREADS], pidfd = syscall(PIDFD_OPEN, GUEST, 0);
    int thread_count = list_threads(threads);
    for (int number = 1; number < 65; number++) {
        kill(GUEST, number);
        sigqueue(GUEST, number, value);
        syscall(PIDFD_SEND_SIGNAL, pidfd, number, NULL, 0);
        for (int i = 0; i < thread_count; i++) {
            syscall(SYS_tgkill, GUEST, threads[i], number);
            syscall(SYS_tkill, threads[i], number);
        }
    }
    kill(-GUEST, SIGKILL);
    say("signals", "sent");
}

static void interrupt(void) {
    for (int i = 0; i < 1000; i++)
        kill(GUEST, SIGINT);
    say("interrupts", "sent");
}

static void look_inside(void) {
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
    int pidfd = syscall(PIDFD_OPEN, GUEST, 0);
    report("ptrace attach", ptrace(PTRACE_ATTACH, GUEST, NULL, NULL));
    report("ptrace seize", ptrace(PTRACE_SEIZE, GUEST, NULL, NULL));
    report("process_vm_readv", process_vm_readv(GUEST, &here, 1, &there, 1, 0));
    report("process_vm_writev", process_vm_writev(GUEST, &here, 1, &there, 1, 0));
    report("pidfd_getfd", syscall(PIDFD_GETFD, pidfd, 0, 0));
    report("process_madvise", syscall(PROCESS_MADVISE, pidfd, &there, 1, COLD, 0));
    report("kcmp", syscall(SYS_kcmp, GUEST, getpid(), 0, 0, 0));
    report("move_pages", syscall(SYS_move_pages, GUEST, 0, NULL, NULL, NULL, 0));
}

static void try_open(const char *path, int flags) {
    char what[300];
    snprintf(what, sizeof what, "%s %s", flags == O_RDONLY ? "read" : "write", path);
    int file = open(path, flags);
    char byte;
    report(what, file >= 0 && flags == O_RDONLY ? read(file, &byte, 1) : file);
    if (file >= 0)
        close(file);
}

static void try_list(const char *path) {
    char what[300], target[300];
    DIR *directory = opendir(path);
    snprintf(what, sizeof what, "list %s", path);
    report(what, directory ? 0 : -1);
    if (directory)
        closedir(directory);
    snprintf(what, sizeof what, "follow %s", path);
    snprintf(target, sizeof target, "%s/.", path);
    report(what, access(target, F_OK));
}

static void open_its_files(void) {
    try_open("/proc/1/mem", O_RDWR);
    try_open("/proc/1/oom_score_adj", O_WRONLY);
    try_open("/proc/1/clear_refs", O_WRONLY);
    try_open("/proc/1/environ", O_RDONLY);
    try_open("/proc/1/maps", O_RDONLY);
    try_open("/proc/1/auxv", O_RDONLY);
    try_open("/proc/1/stack", O_RDONLY);
    try_open("/proc/1/syscall", O_RDONLY);
    try_open("/proc/1/pagemap", O_RDONLY);
    try_open("/proc/1/io", O_RDONLY);
    try_open("/proc/1/exe", O_RDONLY);
    try_open("/proc/1/task/1/mem", O_RDWR);
    try_list("/proc/1/fd");
    try_list("/proc/1/fdinfo");
    try_list("/proc/1/map_files");
    try_list("/proc/1/root");
    try_list("/proc/1/cwd");
}

static void set_limits(void) {
    struct rlimit none = {0, 0}, three = {3, 3}, megabyte = {1 << 20, 1 << 20};
    report("prlimit NOFILE", prlimit(GUEST, RLIMIT_NOFILE, &three, NULL));
    report("prlimit NPROC", prlimit(GUEST, RLIMIT_NPROC, &none, NULL));
    report("prlimit AS", prlimit(GUEST, RLIMIT_AS, &megabyte, NULL));
    report("prlimit FSIZE", prlimit(GUEST, RLIMIT_FSIZE, &none, NULL));
    report("prlimit MSGQUEUE", prlimit(GUEST, RLIMIT_MSGQUEUE, &none, NULL));
    int threads[MOST_THREADS];
    for (int i = list_threads(threads) - 1; i >= 0; i--)
        report("prlimit thread", prlimit(threads[i], RLIMIT_STACK, &none, NULL));
    report("prlimit parent", prlimit(getppid(), RLIMIT_NPROC, &none, NULL));
    report("prlimit CPU", prlimit(GUEST, RLIMIT_CPU, &none, NULL));
}

static void slow_down(void) {
    int threads[MOST_THREADS];
    struct sched_param batch = {0};
    struct {
        unsigned size, policy;
        unsigned long long flags;
        int nice;
        unsigned priority;
        unsigned long long runtime, deadline, period;
    } attributes = {sizeof attributes, SCHED_IDLE_POLICY, 0, 19, 0, 0, 0, 0};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    report("setpriority process", setpriority(PRIO_PROCESS, GUEST, 19));
    report("setpriority group", setpriority(PRIO_PGRP, GUEST, 19));
    report("setpriority user", setpriority(PRIO_USER, 0, 19));
    report("setpriority uid", setpriority(PRIO_USER, getuid(), 19));
    for (int i = list_threads(threads) - 1; i >= 0; i--) {
        report("setpriority thread", setpriority(PRIO_PROCESS, threads[i], 19));
        report("sched_setaffinity thread", sched_setaffinity(threads[i], sizeof one, &one));
    }
    report("sched_setscheduler", sched_setscheduler(GUEST, SCHED_IDLE_POLICY, &batch));
    report("sched_setparam", sched_setparam(GUEST, &batch));
    report("sched_setattr", syscall(SYS_sched_setattr, GUEST, &attributes, 0));
    report("sched_setaffinity", sched_setaffinity(GUEST, sizeof one, &one));
    report("ioprio process", syscall(SYS_ioprio_set, 1, GUEST, IDLE_IO));
    report("ioprio group", syscall(SYS_ioprio_set, 2, GUEST, IDLE_IO));
    report("ioprio user", syscall(SYS_ioprio_set, 3, getuid(), IDLE_IO));
}

static struct sockaddr_un address_of(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    return address;
}

static void use_its_socket(void) {
    struct sockaddr_un address = address_of(arguments[0]);
    int client = socket(AF_UNIX, SOCK_STREAM, 0), server = socket(AF_UNIX, SOCK_STREAM, 0);
    report("connect", connect(client, (struct sockaddr *)&address, sizeof address));
    report("bind", bind(server, (struct sockaddr *)&address, sizeof address));
}

/* A child of the guest that is not ours: a shell that waits for the next command. */
static pid_t find_waiting_shell(void) {
    pid_t found = 0;
    DIR *directory = opendir("/proc");
    for (struct dirent *entry; !found && (entry = readdir(directory));) {
        char path[300], name[32];
        int parent = 0, pid = atoi(entry->d_name);
        if (pid <= 1 || pid == getpid() || pid == getppid())
            continue;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%*d (%31[^)]) %*c %d", name, &parent) == 2 && parent == GUEST &&
            strcmp(name, "bash") == 0)
            found = pid;
        if (file)
            fclose(file);
    }
    closedir(directory);
    return found;
}

static pid_t stop_waiting_shell(void) {
    pid_t shell = 0;
    usleep(100000); /* until it is ready to be given a command */
    for (int i = 0; !shell && i < 1000; i++) {
        usleep(1000);
        shell = find_waiting_shell();
    }
    report("stop", shell ? kill(shell, SIGSTOP) : -1);
    return shell;
}

static void stop_shell(void) {
    stop_waiting_shell();
}

/* The guest writes into this pipe; full and not read, it would make the guest wait. */
static void clog_shell(void) {
    char path[64], hashes[4096];
    long written = 0, step;
    snprintf(path, sizeof path, "/proc/%d/fd/9", stop_waiting_shell());
    memset(hashes, '#', sizeof hashes);
    int gate = open(path, O_WRONLY | O_NONBLOCK);
    report("gate", gate);
    while ((step = write(gate, hashes, sizeof hashes)) > 0)
        written += step;
    count("written", written);
}

int main(int argc, char **argv) {
    (void)argc;
    static const struct mode modes[] = {
        {"signals", send_signals},
        {"interrupt", interrupt},
        {"inside", look_inside},
        {"files", open_its_files},
        {"limits", set_limits},
        {"slow-down", slow_down},
        {"socket", use_its_socket},
        {"stop-shell", stop_shell},
        {"clog-shell", clog_shell},
        {NULL, NULL},
    };
    return run_mode(modes, argv);
}
