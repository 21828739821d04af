/* A library that leaves the pid of the processes it is loaded into.
   Almost every program calls this function; not every compiler has constructors. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

char *setlocale(int category, const char *locale) {
    char line[32];
    int length = snprintf(line, sizeof line, "%d\n", getpid());
    int file = open("/workspace/loaded", O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)category, (void)locale;
    if (file >= 0 && write(file, line, length) == length)
        close(file);
    return NULL;
}
