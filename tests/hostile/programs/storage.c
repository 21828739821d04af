/* Programs that fill or wear a filesystem. */
#include "attempt.h"
#include <fcntl.h>

#define BLOCK (64 * 1024)
#define MOST_BYTES (1L << 30)
#define MOST_FILES 100000L
#define STORM_BYTES (8 << 20)

static char block[BLOCK];

static void fill_bytes(void) {
    char path[4096];
    long written = 0;
    snprintf(path, sizeof path, "%s/large", arguments[0]);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t step = file < 0 ? -1 : 0;
    /* Single bytes at the end, so that not one is left. */
    for (size_t size = BLOCK; file >= 0 && size > 0; size /= 2)
        while (written < MOST_BYTES && (step = write(file, block, size)) > 0)
            written += step;
    report("write", step);
    count("bytes", written);
    exit(step < 0);
}

static void fill_files(void) {
    char path[4096];
    long made = 0;
    int file = 0;
    while (made < MOST_FILES && file >= 0) {
        snprintf(path, sizeof path, "%s/file-%06ld", arguments[0], made);
        file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (file >= 0) {
            close(file);
            made++;
        }
    }
    report("create", file);
    count("files", made);
    exit(file < 0);
}

static void write_here_and_there(int file) {
    for (unsigned seed = getpid();; seed = seed * 1103515245 + 12345) {
        if (pwrite(file, block, 4096, seed % STORM_BYTES) < 0)
            exit(2);
        fsync(file);
    }
}

static void sync_storm(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/storm", arguments[0]);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 3; i++)
        if (fork() == 0)
            break;
    write_here_and_there(file);
}

int main(int argc, char **argv) {
    static const struct mode modes[] = {
        {"bytes", fill_bytes},
        {"files", fill_files},
        {"sync-storm", sync_storm},
        {NULL, NULL},
    };
    return argc == 3 ? run_mode(modes, argv) : 64;
}
