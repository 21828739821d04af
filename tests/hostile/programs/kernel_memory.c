/* Programs that make the kernel hold memory which may not be counted as theirs. Each takes some
   300 MB where nothing stops it, says what it got, and holds it. */
#include "attempt.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#define MEGABYTE (1L << 20)
#define WANTED (300 * MEGABYTE)
#define LARGEST_BUFFER (4 << 20)
#define LOCKS 1600000L
#define FILTER_LENGTH 4090

static char block[65536];

static void hold(const char *what, long taken) {
    count(what, taken);
    say("holding", "ok");
    for (;;)
        pause();
}

static void use_largest_buffers(int descriptor) {
    int size = LARGEST_BUFFER;
    setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
}

static long write_all_it_takes(int descriptor, size_t size) {
    long written = 0, last;
    while (written < WANTED && (last = write(descriptor, block, size)) > 0)
        written += last;
    return written;
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int listener(struct sockaddr_in *address) {
    socklen_t length = sizeof *address;
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    *address = loopback(0);
    use_largest_buffers(descriptor);
    if (bind(descriptor, (void *)address, length) < 0 || listen(descriptor, 4096) < 0)
        exit(2);
    getsockname(descriptor, (void *)address, &length);
    return descriptor;
}

/* Both ends write and nobody reads. */
static void tcp(void) {
    struct sockaddr_in address;
    int listening = listener(&address);
    long written = 0;
    for (int i = 0; i < 300 && written < WANTED; i++) {
        int near = socket(AF_INET, SOCK_STREAM, 0);
        if (near < 0 || connect(near, (void *)&address, sizeof address) < 0)
            break;
        struct pollfd waiting = {.fd = listening, .events = POLLIN};
        poll(&waiting, 1, 1000);
        int far = accept(listening, NULL, NULL);
        if (far < 0)
            break;
        use_largest_buffers(near);
        use_largest_buffers(far);
        for (int turn = 0; turn < 20; turn++)
            written += write_all_it_takes(near, sizeof block)
                       + write_all_it_takes(far, sizeof block);
    }
    hold("bytes", written);
}

/* Connections that are never accepted; the end that wrote is closed. */
static void unaccepted(void) {
    long written = 0;
    for (int i = 0; i < 8 && written < WANTED; i++) {
        struct sockaddr_in address;
        listener(&address);
        for (int j = 0; j < 4000 && written < WANTED; j++) {
            int near = socket(AF_INET, SOCK_STREAM, 0);
            use_largest_buffers(near);
            if (connect(near, (void *)&address, sizeof address) < 0 && errno != EINPROGRESS) {
                close(near);
                break;
            }
            written += write_all_it_takes(near, sizeof block);
            close(near);
        }
    }
    hold("bytes", written);
}

/* Datagrams that nobody reads. */
static void fill_receive_queues(int family, int kind, int protocol, size_t size, int port) {
    long written = 0;
    for (int i = 0; i < 1000 && written < WANTED; i++) {
        struct sockaddr_in address = loopback(port ? port + i : 0);
        int descriptor = socket(family, kind, protocol);
        if (descriptor < 0) {
            report("socket", -1);
            break;
        }
        use_largest_buffers(descriptor);
        bind(descriptor, (void *)&address, sizeof address);
        connect(descriptor, (void *)&address, sizeof address);
        /* Sending succeeds without room at the receiver, which has twice what was asked for. */
        for (long sent = 0; sent < 2 * LARGEST_BUFFER; sent += size) {
            long last = write(descriptor, block, size);
            if (last < 0)
                break;
            written += last;
        }
    }
    hold("bytes", written);
}

static void udp(void) {
    fill_receive_queues(AF_INET, SOCK_DGRAM, 0, 32768, 20000);
}

/* Echo requests: the kernel itself answers them. */
static void ping(void) {
    block[0] = 8;
    fill_receive_queues(AF_INET, SOCK_DGRAM, IPPROTO_ICMP, 32768, 20000);
}

static void netlink(void) {
    struct {
        struct nlmsghdr header;
        struct ifinfomsg message;
    } question = {
        .header = {.nlmsg_len = sizeof question,
                   .nlmsg_type = RTM_GETLINK,
                   .nlmsg_flags = NLM_F_REQUEST},
        .message = {.ifi_family = AF_UNSPEC, .ifi_index = 1},
    };
    long asked = 0;
    for (int i = 0; i < 1000 && asked < WANTED / 2048; i++) {
        int descriptor = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
        if (descriptor < 0)
            break;
        use_largest_buffers(descriptor);
        for (int j = 0; j < 4000 && send(descriptor, &question, sizeof question, 0) > 0; j++)
            asked++;
    }
    hold("answers", asked);
}

/* In bytes apart from each other, so that none joins another. */
static long lock_bytes(int command, int files, long most) {
    long taken = 0;
    for (int i = 0; i < files; i++) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/locked-%d-%d", getpid(), i);
        int descriptor = open(path, O_RDWR | O_CREAT, 0600);
        for (long j = most / files; j > 0; j--) {
            struct flock lock = {.l_type = F_WRLCK, .l_start = 4 * j, .l_len = 1};
            if (fcntl(descriptor, command, &lock) < 0)
                break;
            taken++;
        }
        unlink(path);
    }
    return taken;
}

static void posix_locks(void) {
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            lock_bytes(F_SETLK, 200, LOCKS / 4);
            for (;;)
                pause();
        }
    hold("locks", lock_bytes(F_SETLK, 200, LOCKS / 4));
}

static void description_locks(void) {
    hold("locks", lock_bytes(F_OFD_SETLK, 400, LOCKS));
}

/* A child that has the descriptors of this process, not copies of them. */
static pid_t fork_sharing_files(void) {
    return syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
}

/* The process that the kernel names as the owner of the locks is gone while they stay. */
static void locks_of_the_dead(void) {
    pid_t child = fork_sharing_files();
    if (child == 0) {
        lock_bytes(F_SETLK, 200, LOCKS);
        _exit(0);
    }
    report("clone", child);
    if (child > 0)
        waitpid(child, NULL, 0);
    hold("locks", child > 0);
}

static const struct sock_filter *long_filter(void) {
    static struct sock_filter filter[FILTER_LENGTH];
    for (int i = 0; i < FILTER_LENGTH; i++)
        filter[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 0x40000000 + i);
    filter[FILTER_LENGTH - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return filter;
}

static void socket_filters(void) {
    struct sock_fprog program = {FILTER_LENGTH, (struct sock_filter *)long_filter()};
    long taken = 0, last = 0;
    while (taken < 900 && last == 0) {
        int descriptor = socket(AF_UNIX, SOCK_DGRAM, 0);
        last = setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
        taken += last == 0;
    }
    report("filter", last);
    hold("filters", taken);
}

/* A listener keeps the filters of its process when that process has ended. */
static void listening_filters(void) {
    struct sock_fprog program = {FILTER_LENGTH, (struct sock_filter *)long_filter()};
    long taken = 0, last = 0;
    while (taken < 600 && last >= 0) {
        /* With the descriptors of this process, so that the listener stays. */
        errno = 0;
        pid_t child = fork_sharing_files();
        if (child == 0) {
            for (int i = 0; i < 6 && last >= 0; i++)
                last = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
            if (last >= 0)
                last = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                               SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
            _exit(last < 0 ? errno : 0);
        }
        int status = 0;
        if (child > 0 && waitpid(child, &status, 0) == child)
            errno = WEXITSTATUS(status);
        last = errno ? -1 : 0;
        taken += last == 0 ? 7 : 0;
    }
    report("seccomp", last);
    hold("filters", taken);
}

static void filters(void) {
    struct sock_fprog program = {FILTER_LENGTH, (struct sock_filter *)long_filter()};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    report("listener", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                               SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
    report("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
    report("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
    report("prctl with upper bits",
           syscall(SYS_prctl, PR_SET_SECCOMP | 1L << 32, SECCOMP_MODE_FILTER, &program, 0, 0));
    int descriptor = socket(AF_UNIX, SOCK_DGRAM, 0);
    report("socket", setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &program,
                                sizeof program));
    int internet = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    setsockopt(internet, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    report("port", setsockopt(internet, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
                              sizeof program));
}

/* --- what is believed to be counted --- */

/* A child for every 900 descriptors that are wanted, each of which takes as many. */
static void in_children(int children, long (*take)(void)) {
    for (int i = 0; i < children; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            while (take() >= 0) {
            }
            for (;;)
                pause();
        }
    hold("children", children);
}

static long next_path(char *path, size_t size) {
    static long number;
    snprintf(path, size, "/tmp/taken-%d-%ld", getpid(), number++);
    return number;
}

static long flock_one(void) {
    static char path[64];
    if (path[0] == 0)
        next_path(path, sizeof path);
    int descriptor = open(path, O_RDWR | O_CREAT, 0600);
    return descriptor < 0 ? -1 : flock(descriptor, LOCK_SH | LOCK_NB);
}

static long lease_one(void) {
    static char path[64];
    if (path[0] == 0)
        next_path(path, sizeof path);
    int descriptor = open(path, O_RDONLY | O_CREAT, 0600);
    return descriptor < 0 ? -1 : fcntl(descriptor, F_SETLEASE, F_RDLCK);
}

static void flocks(void) {
    in_children(100, flock_one);
}

static void leases(void) {
    in_children(100, lease_one);
}

static void epolls(void) {
    long taken = 0;
    int files[400];
    for (int i = 0; i < 400; i++)
        files[i] = dup(0) < 0 ? -1 : timerfd_create(CLOCK_MONOTONIC, 0);
    for (int i = 0; i < 200; i++) {
        int waiting = epoll_create1(0);
        for (int j = 0; j < 400; j++) {
            struct epoll_event event = {.events = EPOLLIN};
            taken += epoll_ctl(waiting, EPOLL_CTL_ADD, files[j], &event) == 0;
        }
    }
    hold("items", taken);
}

static void watches(void) {
    long taken = 0;
    for (int i = 0; i < 100; i++) {
        int watching = inotify_init();
        for (int j = 0; j < 4000; j++) {
            char path[64];
            snprintf(path, sizeof path, "/tmp/watched-%d", j);
            close(open(path, O_RDWR | O_CREAT, 0600));
            if (inotify_add_watch(watching, path, IN_ALL_EVENTS) < 0)
                break;
            taken++;
        }
    }
    for (int j = 0; j < 4000; j++) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/watched-%d", j);
        unlink(path);
    }
    hold("watches", taken);
}

static long one_timer(void) {
    timer_t timer;
    struct sigevent quiet = {.sigev_notify = SIGEV_NONE};
    return timer_create(CLOCK_MONOTONIC, &quiet, &timer);
}

static void timers(void) {
    long taken = 0;
    while (taken < 1000000 && one_timer() == 0)
        taken++;
    hold("timers", taken);
}

static void areas(void) {
    long taken = 0;
    for (int i = 0; i < 20; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) {
                void *area = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (area == MAP_FAILED)
                    pause();
                mprotect(area, 4096, PROT_NONE);
            }
        } else
            taken++;
    hold("children", taken);
}

/* The zero page costs nothing, the tables that name it do. */
static void page_tables(void) {
    long taken = 0;
    volatile char sum = 0;
    for (; taken < WANTED / 4096; taken++) {
        char *area = mmap(NULL, 2 * MEGABYTE, PROT_READ,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (area == MAP_FAILED)
            break;
        sum += area[MEGABYTE];
    }
    hold("tables", taken);
}

static void names(void) {
    long taken = 0;
    char path[256];
    memset(path, 'x', sizeof path);
    for (; taken < 1000000; taken++) {
        snprintf(path, sizeof path, "/workspace/%0200ld", taken);
        access(path, F_OK);
    }
    hold("names", taken);
}

static void passed_descriptors(void) {
    long taken = 0;
    int pair[2], last = 0;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(250 * sizeof(int))];
    } control;
    while (last >= 0 && taken < 1000000 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0) {
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
        struct iovec byte = {.iov_base = block, .iov_len = 1};
        struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control,
                                 .msg_controllen = sizeof control};
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(250 * sizeof(int)),
                                          .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        for (int i = 0; i < 250; i++)
            ((int *)CMSG_DATA(&control.header))[i] = pair[1];
        while ((last = sendmsg(pair[0], &message, 0)) > 0)
            taken += 250;
    }
    hold("descriptors", taken);
}

/* --- options for which a socket keeps memory, up to some 100 kB each --- */

#define OPTION_BYTES 60000
#define PACKET_OPTIONS 6 /* IPV6_2292PKTOPTIONS */
#define FLOW_LABELS 32   /* IPV6_FLOWLABEL_MGR */
#define SIGNATURE_KEYS 14 /* TCP_MD5SIG */

static int internet_socket(void) { return socket(AF_INET6, SOCK_DGRAM, 0); }

static long join_group(int descriptor, long number) {
    struct ipv6_mreq group = {.ipv6mr_interface = 1};
    inet_pton(AF_INET6, "ff02::1:0:0", &group.ipv6mr_multiaddr);
    memcpy(&group.ipv6mr_multiaddr.s6_addr[8], &number, sizeof number);
    return setsockopt(descriptor, IPPROTO_IPV6, IPV6_JOIN_GROUP, &group, sizeof group);
}

static long member_of_many(void) {
    int descriptor = internet_socket();
    long number = 0;
    while (descriptor >= 0 && join_group(descriptor, number) == 0)
        number++;
    return number > 0 ? 0 : -1;
}

static void memberships(void) {
    report("group", join_group(internet_socket(), 0));
    in_children(6, member_of_many);
}

/* As many traffic classes as fit; each of them is valid, and the last one counts. */
static const char *packet_options_of(size_t size, size_t *length) {
    static char options[OPTION_BYTES];
    int class = 0;
    for (*length = 0; *length + CMSG_SPACE(sizeof class) <= size;
         *length += CMSG_SPACE(sizeof class)) {
        struct cmsghdr *header = (void *)(options + *length);
        *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof class),
                                   .cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_TCLASS};
        memcpy(CMSG_DATA(header), &class, sizeof class);
    }
    return options;
}

static long with_packet_options(void) {
    size_t length;
    const char *options = packet_options_of(OPTION_BYTES, &length);
    return setsockopt(internet_socket(), IPPROTO_IPV6, PACKET_OPTIONS, options, length);
}

static void packet_options(void) {
    report("option", with_packet_options());
    in_children(6, with_packet_options);
}

/* All sockets of the host share what there is of them. */
static long with_flow_label(void) {
    struct {
        struct in6_addr destination;
        unsigned label;
        unsigned char action, share;
        unsigned short flags, expires, linger;
        unsigned padding;
    } request = {.action = 0, .share = 1, .flags = 1, .linger = 6};
    request.destination = in6addr_loopback;
    return setsockopt(internet_socket(), IPPROTO_IPV6, FLOW_LABELS, &request, sizeof request);
}

static void flow_labels(void) {
    report("label", with_flow_label());
    in_children(5, with_flow_label);
}

static long add_key(int descriptor, unsigned number) {
    struct {
        struct sockaddr_storage address;
        unsigned char flags, prefix;
        unsigned short length;
        int interface;
        unsigned char key[80];
    } request = {.length = 80};
    struct sockaddr_in *address = (void *)&request.address;
    *address = loopback(0);
    address->sin_addr.s_addr = htonl(number);
    return setsockopt(descriptor, IPPROTO_TCP, SIGNATURE_KEYS, &request, sizeof request);
}

static long with_many_keys(void) {
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    unsigned number = 1;
    while (descriptor >= 0 && add_key(descriptor, number) == 0)
        number++;
    return number > 1 ? 0 : -1;
}

static void signature_keys(void) {
    report("key", add_key(socket(AF_INET, SOCK_STREAM, 0), 1));
    in_children(6, with_many_keys);
}

static void socket_options(void) {
    report("group", join_group(internet_socket(), 0));
    report("option", with_packet_options());
    report("label", with_flow_label());
    report("key", add_key(socket(AF_INET, SOCK_STREAM, 0), 1));
}

int main(int argc, char **argv) {
    (void)argc;
    static const struct mode modes[] = {
        {"tcp", tcp},
        {"unaccepted", unaccepted},
        {"udp", udp},
        {"ping", ping},
        {"netlink", netlink},
        {"posix-locks", posix_locks},
        {"description-locks", description_locks},
        {"locks-of-the-dead", locks_of_the_dead},
        {"socket-filters", socket_filters},
        {"listening-filters", listening_filters},
        {"filters", filters},
        {"flocks", flocks},
        {"leases", leases},
        {"epolls", epolls},
        {"watches", watches},
        {"timers", timers},
        {"areas", areas},
        {"page-tables", page_tables},
        {"names", names},
        {"passed-descriptors", passed_descriptors},
        {"memberships", memberships},
        {"packet-options", packet_options},
        {"flow-labels", flow_labels},
        {"signature-keys", signature_keys},
        {"socket-options", socket_options},
        {NULL, NULL},
    };
    return run_mode(modes, argv);
}
