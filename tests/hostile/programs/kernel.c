/* Attempts to leave the sandbox or to reach parts of the kernel that no command needs. */
#include "attempt.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

/* Newer than some headers. */
enum {
    CLONE3 = 435,
    OPEN_TREE = 428,
    MOVE_MOUNT = 429,
    FSOPEN = 430,
    MOUNT_SETATTR = 442,
    IO_URING_SETUP = 425,
    MEMFD_SECRET = 447,
};

static const char *name_of(const char *call, const char *way) {
    static char name[100];
    snprintf(name, sizeof name, "%s %s", call, way);
    return name;
}

static long clone_into(unsigned long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    if (child > 0)
        waitpid(child, NULL, 0);
    return child;
}

static void namespaces(void) {
    unsigned long long new_user[11] = {CLONE_NEWUSER};
    report("unshare user", unshare(CLONE_NEWUSER));
    report("unshare mount", unshare(CLONE_NEWNS));
    report("unshare network", unshare(CLONE_NEWNET));
    report("unshare cgroup", unshare(CLONE_NEWCGROUP));
    report("clone user", clone_into(CLONE_NEWUSER));
    report("clone pid", clone_into(CLONE_NEWPID));
    long child = syscall(CLONE3, new_user, sizeof new_user);
    if (child == 0)
        _exit(0);
    report("clone3 user", child);
    report("setns", setns(open("/proc/self/ns/net", O_RDONLY), CLONE_NEWNET));
}

static void mounts(void) {
    report("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
    report("remount", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    report("bind", mount("/", "/tmp", NULL, MS_BIND, NULL));
    report("umount", umount2("/proc/kcore", MNT_DETACH));
    report("open_tree", syscall(OPEN_TREE, AT_FDCWD, "/", 1));
    report("move_mount", syscall(MOVE_MOUNT, AT_FDCWD, "/tmp", AT_FDCWD, "/workspace", 0));
    report("fsopen", syscall(FSOPEN, "tmpfs", 0));
    report("mount_setattr", syscall(MOUNT_SETATTR, AT_FDCWD, "/", 0, NULL, 0));
    report("pivot_root", syscall(SYS_pivot_root, "/", "/tmp"));
    report("chroot", chroot("/tmp"));
    report("name_to_handle_at", syscall(SYS_name_to_handle_at, AT_FDCWD, "/", NULL, NULL, 0));
    report("open_by_handle_at", syscall(SYS_open_by_handle_at, AT_FDCWD, NULL, 0));
}

static void calls(void) {
    /* Arguments that the kernel itself would accept or refuse otherwise than with EPERM. */
    char parameters[256] = {0};
    report("io_uring_setup", syscall(IO_URING_SETUP, 1, parameters));
    report("userfaultfd", syscall(SYS_userfaultfd, 1));
    report("bpf", syscall(SYS_bpf, 0, parameters, 48));
    report("keyctl", syscall(SYS_keyctl, 0, -3, 1));
    report("add_key", syscall(SYS_add_key, "user", "k", "v", 1, -3));
    report("request_key", syscall(SYS_request_key, "user", "k", NULL, -3));
    report("perf_event_open", syscall(SYS_perf_event_open, parameters, 0, -1, -1, 0));
    report("ptrace", ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    report("modify_ldt", syscall(SYS_modify_ldt, 0, parameters, sizeof parameters));
    report("memfd_secret", syscall(MEMFD_SECRET, 0));
    report("vmsplice", syscall(SYS_vmsplice, -1, NULL, 0, 0));
    report("shmget", syscall(SYS_shmget, 0, 4096, 01600));
    report("msgget", syscall(SYS_msgget, 0, 01600));
    report("semget", syscall(SYS_semget, 0, 1, 01600));
    report("fanotify_init", syscall(SYS_fanotify_init, 0, 0));
    report("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0));
    report("init_module", syscall(SYS_init_module, parameters, 0, ""));
    report("finit_module", syscall(SYS_finit_module, 0, "", 0));
    report("reboot", syscall(SYS_reboot, 0, 0, 0, NULL));
    report("swapon", syscall(SYS_swapon, "/tmp/x", 0));
    report("syslog", syscall(SYS_syslog, 3, parameters, 1));
    report("acct", syscall(SYS_acct, NULL));
    report("iopl", syscall(SYS_iopl, 3));
    report("settimeofday", syscall(SYS_settimeofday, parameters, NULL));
    report("sethostname", syscall(SYS_sethostname, "x", 1));
    report("personality", syscall(SYS_personality, 0x0400000));
}

static void families(void) {
    static const struct {
        const char *name;
        int family, type;
    } tried[] = {
        {"vsock", 40, SOCK_STREAM},   {"packet", AF_PACKET, SOCK_RAW}, {"alg", 38, SOCK_SEQPACKET},
        {"bluetooth", 31, SOCK_RAW},  {"can", 29, SOCK_RAW},           {"tipc", 30, SOCK_SEQPACKET},
        {"rds", 21, SOCK_SEQPACKET},  {"xdp", 44, SOCK_RAW},           {"kcm", 41, SOCK_DGRAM},
        {"qipcrtr", 42, SOCK_DGRAM},  {"smc", 43, SOCK_STREAM},        {"llc", 26, SOCK_DGRAM},
        {"x25", 9, SOCK_SEQPACKET},   {"appletalk", 5, SOCK_DGRAM},
    };
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++)
        report(tried[i].name, socket(tried[i].family, tried[i].type, 0));
    report("raw", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    report("raw6", socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6));
    int pair[2];
    report("vsock pair", socketpair(40, SOCK_STREAM, 0, pair));
}

static void try_connect(const char *host, int port, int type) {
    char what[100];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    int file = socket(AF_INET, type, 0);
    snprintf(what, sizeof what, "%s %s", type == SOCK_STREAM ? "tcp" : "udp", host);
    report(what, connect(file, (struct sockaddr *)&address, sizeof address));
    close(file);
}

static void network(void) {
    static const struct {
        const char *host;
        int port;
    } tried[] = {{"169.254.169.254", 80}, {"172.17.0.1", 2375}, {"8.8.8.8", 53}, {"10.0.0.1", 22}};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        try_connect(tried[i].host, tried[i].port, SOCK_STREAM);
        try_connect(tried[i].host, tried[i].port, SOCK_DGRAM);
    }
    try_connect("127.0.0.1", 5000, SOCK_STREAM);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
    inet_pton(AF_INET6, "2001:4860:4860::8888", &address.sin6_addr);
    int file = socket(AF_INET6, SOCK_DGRAM, 0);
    report("udp6", file < 0 ? -1 : connect(file, (struct sockaddr *)&address, sizeof address));
}

/* kernel abstract connect|listen NAME: a socket that has a name but no file. */
static void abstract(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path + 1, arguments[1], sizeof address.sun_path - 2);
    socklen_t length = sizeof address.sun_family + 1 + strlen(arguments[1]);
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    if (strcmp(arguments[0], "connect") == 0) {
        report("connect", connect(file, (struct sockaddr *)&address, length));
        return;
    }
    report("bind", bind(file, (struct sockaddr *)&address, length));
    report("listen", listen(file, 1));
    for (;;)
        pause();
}

static void privileges(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct all[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    gid_t root = 0;
    report("setuid", syscall(SYS_setuid, 0));
    report("setresuid", syscall(SYS_setresuid, 0, 0, 0));
    report("setgid", syscall(SYS_setgid, 0));
    report("setgroups", syscall(SYS_setgroups, 1, &root));
    report("capset", syscall(SYS_capset, &header, all));
    report("chown", chown("/workspace", 0, 0));
    struct rlimit infinite = {RLIM_INFINITY, RLIM_INFINITY};
    report("setrlimit", setrlimit(RLIMIT_NOFILE, &infinite));
    report("nice", setpriority(PRIO_PROCESS, 0, -5));
}

static void devices(void) {
    report("mknod disk", mknod("disk", S_IFBLK | 0600, makedev(8, 0)));
    report("mknod memory", mknod("memory", S_IFCHR | 0600, makedev(1, 1)));
    report("open memory", open("/dev/mem", O_RDONLY));
    report("open kmsg", open("/dev/kmsg", O_RDONLY));
    report("open fuse", open("/dev/fuse", O_RDWR));
    report("open kvm", open("/dev/kvm", O_RDWR));
    report("open loop", open("/dev/loop-control", O_RDWR));
    report("open vsock", open("/dev/vsock", O_RDWR));
}

/* Whether the files named can be opened for writing, or replaced. */
static void writes(void) {
    for (char **paths = arguments; *paths; paths++) {
        char beside[4096];
        snprintf(beside, sizeof beside, "%s.new", *paths);
        report(name_of("write", *paths), open(*paths, O_WRONLY));
        report(name_of("unlink", *paths), unlink(*paths));
        report(name_of("create", beside), open(beside, O_WRONLY | O_CREAT, 0600));
    }
}

/* What of the files named can be read: nothing, or their size. */
static void reads(void) {
    for (char **paths = arguments; *paths; paths++) {
        char data[4096];
        int file = open(*paths, O_RDONLY);
        ssize_t got = file < 0 ? -1 : read(file, data, sizeof data);
        if (got == 0)
            say(name_of("read", *paths), "empty");
        else
            report(name_of("read", *paths), got);
    }
}

#ifdef __x86_64__

#define X32 0x40000000L

static sigjmp_buf after_the_call;

static void end_call(int number) {
    siglongjmp(after_the_call, number);
}

/* A call through the gate of 32-bit programs, or the signal it was answered with. */
static void call_32(const char *name, long number, long a, long b, long c) {
    long result;
    int caught = sigsetjmp(after_the_call, 1);
    if (caught) {
        say(name_of("int80", name), sigabbrev_np(caught));
        return;
    }
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(a), "c"(b), "d"(c), "S"(0L), "D"(0L)
                     : "memory", "r8", "r9", "r10", "r11");
    errno = result < 0 ? -(int)result : 0;
    report(name_of("int80", name), result < 0 ? -1 : 0);
}

static void call_x32(const char *name, long number, long a, long b, long c) {
    int caught = sigsetjmp(after_the_call, 1);
    if (caught)
        say(name_of("x32", name), sigabbrev_np(caught));
    else
        report(name_of("x32", name), syscall(X32 | number, a, b, c, 0, 0));
}

/* The calls of another architecture have other numbers: a filter has to know them too. */
static void foreign_calls(void) {
    int *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    signal(SIGSYS, end_call);
    signal(SIGSEGV, end_call);
    low[0] = 40;
    low[1] = SOCK_STREAM;
    low[2] = 0;
    call_32("prlimit64", 340, 1, RLIMIT_FSIZE, (long)(low + 8));
    call_32("ptrace", 26, PTRACE_TRACEME, 0, 0);
    call_32("unshare", 310, CLONE_NEWUSER, 0, 0);
    call_32("mount", 21, (long)low, (long)low, (long)low);
    call_32("keyctl", 288, 0, -3, 1);
    call_32("bpf", 357, 0, (long)(low + 8), 48);
    call_32("io_uring_setup", 425, 1, (long)(low + 8), 0);
    call_32("setpriority", 97, PRIO_PROCESS, 1, 19);
    call_32("socket vsock", 359, 40, SOCK_STREAM, 0);
    call_32("socketcall vsock", 102, 1, (long)low, 0);
    call_32("ipc shmget", 117, 23, 0, 4096);
    call_32("shmget", 395, 0, 4096, 01600);
    call_32("vm86", 166, 0, 0, 0);
    call_x32("unshare", SYS_unshare, CLONE_NEWUSER, 0, 0);
    call_x32("mount", SYS_mount, (long)low, (long)low, (long)low);
    call_x32("prlimit64", SYS_prlimit64, 1, RLIMIT_FSIZE, (long)(low + 8));
    call_x32("io_uring_setup", IO_URING_SETUP, 1, (long)(low + 8), 0);
    call_x32("socket vsock", SYS_socket, 40, SOCK_STREAM, 0);
}

/* The 32-bit way to the limits of PID 1. */
static void foreign_limits(void) {
    unsigned long long *limit = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    signal(SIGSYS, end_call);
    signal(SIGSEGV, end_call);
    call_32("prlimit64 NOFILE", 340, 1, RLIMIT_NOFILE, (long)limit);
    call_32("prlimit64 CPU", 340, 1, RLIMIT_CPU, (long)limit);
}

#endif

int main(int argc, char **argv) {
    (void)argc;
    static const struct mode modes[] = {
        {"namespaces", namespaces},
        {"mounts", mounts},
        {"calls", calls},
        {"families", families},
        {"network", network},
        {"abstract", abstract},
        {"privileges", privileges},
        {"devices", devices},
        {"writes", writes},
        {"reads", reads},
#ifdef __x86_64__
        {"foreign-calls", foreign_calls},
        {"foreign-limits", foreign_limits},
#endif
        {NULL, NULL},
    };
    return run_mode(modes, argv);
}
