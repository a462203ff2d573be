/*
 * Faults of the disk and of the clock: a library that is loaded before libc (LD_PRELOAD).
 *
 * The file that PACELINE_SPOILER names is mapped: an array of 64-bit words that src/matrix/spoiler.rs writes.
 * The words stay when a process is killed, and count for all processes that map the file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum word { TO_FAIL, FAILED, DELAY_US, SYNCS, OFFSET_S, WORDS };

static _Atomic int64_t *words;

__attribute__((constructor)) static void map_words(void)
{
    const char *path = getenv("PACELINE_SPOILER");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *map = mmap(NULL, WORDS * sizeof *words, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED)
        words = map;
}

/* Whether this sync is one of those that fail. */
static int fails(void)
{
    int64_t left = atomic_load(&words[TO_FAIL]);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&words[TO_FAIL], &left, left - 1)) {
            atomic_fetch_add(&words[FAILED], 1);
            return 1;
        }
    }
    return 0;
}

static int spoil(const char *name, int file)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (words) {
        int64_t delay = atomic_load(&words[DELAY_US]);
        if (delay > 0)
            usleep((useconds_t)delay);
        if (fails()) {
            errno = EIO;
            return -1;
        }
        atomic_fetch_add(&words[SYNCS], 1);
    }
    return real(file);
}

int fsync(int file)
{
    return spoil("fsync", file);
}

int fdatasync(int file)
{
    return spoil("fdatasync", file);
}

static int64_t offset(void)
{
    return words ? atomic_load(&words[OFFSET_S]) : 0;
}

/* The clock of the day jumps; the monotonic one does not, as in the world. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*_Atomic real)(clockid_t, struct timespec *);
    int (*found)(clockid_t, struct timespec *) = atomic_load(&real);
    if (!found) {
        found = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
        atomic_store(&real, found);
    }
    int result = found(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0)
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
