/* Preloaded into a broker: bends CLOCK_REALTIME as a file says, and leaves every other clock alone.
 *
 * The file named by BENT_CLOCK is two int64: nanoseconds that are added to the time, and a time in
 * nanoseconds at which the clock stands still; 0: it runs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *bend;

__attribute__((constructor)) static void open_bend(void) {
    const char *path = getenv("BENT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        bend = mapped;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *found) {
    int failed = (int)syscall(SYS_clock_gettime, id, found);
    if (failed || id != CLOCK_REALTIME || !bend)
        return failed;
    int64_t ns = (int64_t)found->tv_sec * 1000000000 + found->tv_nsec;
    ns = bend[1] ? bend[1] : ns + bend[0];
    found->tv_sec = ns / 1000000000 - (ns % 1000000000 < 0);
    found->tv_nsec = ns - (int64_t)found->tv_sec * 1000000000;
    return 0;
}
