// Preloaded into a daemon: its wall clock is ahead by as many seconds as the file CLOCK_STEP_FILE says.
// The clocks that count from the start of the machine are left alone, as a step of the time of day leaves them, and so is that of the
// times of files, which the kernel keeps.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t nothing = 0;
static volatile int64_t *step = &nothing;

__attribute__((constructor)) static void find_step(void) {
  const char *path = getenv("CLOCK_STEP_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *found = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
  if (found != MAP_FAILED) step = found;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += *step;
  return result;
}

int gettimeofday(struct timeval *now, void *zone) {
  (void)zone;
  struct timespec found;
  int result = clock_gettime(CLOCK_REALTIME, &found);
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return result;
}

time_t time(time_t *stored) {
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (stored) *stored = found.tv_sec;
  return found.tv_sec;
}
