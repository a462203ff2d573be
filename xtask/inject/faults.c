/*
 * Faults from inside: a library that is loaded before libc (LD_PRELOAD) and spoils calls on their way there.
 *
 * The file that PACELINE_FAULTS names is mapped and shared with whoever drives the faults: one record per
 * call, all of it 64-bit words in the machine's own order (xtask/src/inject/library.rs has the other side).
 * A fault is armed by setting `first`, and over as soon as that is zero again; the counts survive a kill.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The calls, in the order of their records. */
enum call { ACCEPT4, EPOLL_CTL, RECV, SEND, EPOLL_WAIT, FUTEX_SLEEP, CONNECT, CUT, CALLS };

/* What becomes of one call, and what became of it. */
struct record {
    _Atomic uint64_t first;    /* the first call that is spoilt; zero: none is */
    _Atomic uint64_t last;     /* the last one */
    _Atomic uint64_t step;     /* of so many calls between ... */
    _Atomic uint64_t run;      /* ... this many are spoilt, one behind the other */
    _Atomic uint64_t error;    /* the errno that it fails with; zero: it does less than it was asked */
    _Atomic uint64_t seen;     /* calls since the fault was armed */
    _Atomic uint64_t injected; /* calls that were spoilt */
};

static struct record *records;

/* Microseconds until a wait is interrupted; at once, again and again, would be a spin and no signal. */
enum { INTERRUPTED_AFTER = 200 };

__attribute__((constructor)) static void map_records(void)
{
    const char *path = getenv("PACELINE_FAULTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *map = mmap(NULL, CALLS * sizeof(struct record), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED)
        records = map;
}

/* Whether this call is to be spoilt; then `error` says how. */
static int strikes(enum call call, int *error)
{
    if (!records)
        return 0;
    struct record *record = &records[call];
    uint64_t first = atomic_load(&record->first);
    if (first == 0)
        return 0;
    uint64_t number = atomic_fetch_add(&record->seen, 1) + 1;
    if (number < first || number > atomic_load(&record->last))
        return 0;
    if ((number - first) % atomic_load(&record->step) >= atomic_load(&record->run))
        return 0;
    *error = (int)atomic_load(&record->error);
    atomic_fetch_add(&record->injected, 1);
    return 1;
}

static int fails(int error)
{
    errno = error;
    return -1;
}

/* The function that this library stands in front of; found once. */
#define REAL(name)                                                                                         \
    static _Atomic(__typeof__(&name)) found;                                                               \
    __typeof__(&name) real = atomic_load(&found);                                                          \
    if (!real) {                                                                                           \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                                 \
        atomic_store(&found, real);                                                                        \
    }

int accept4(int socket, struct sockaddr *address, socklen_t *length, int flags)
{
    REAL(accept4)
    int error;
    return strikes(ACCEPT4, &error) ? fails(error) : real(socket, address, length, flags);
}

int connect(int socket, const struct sockaddr *address, socklen_t length)
{
    REAL(connect)
    int error;
    return strikes(CONNECT, &error) ? fails(error) : real(socket, address, length);
}

/* Only an ADD: a DEL does not fail for want of room. */
int epoll_ctl(int set, int operation, int descriptor, struct epoll_event *event)
{
    REAL(epoll_ctl)
    int error;
    if (operation == EPOLL_CTL_ADD && strikes(EPOLL_CTL, &error))
        return fails(error);
    return real(set, operation, descriptor, event);
}

ssize_t recv(int socket, void *buffer, size_t length, int flags)
{
    REAL(recv)
    int error;
    if (length <= 1 || !strikes(RECV, &error))
        return real(socket, buffer, length, flags);
    return error ? fails(error) : real(socket, buffer, 1, flags);
}

/* What the next write to a descriptor is told that was cut: nothing, no room, no room again, the end. */
enum stage { WHOLE, NO_ROOM, STILL_NO_ROOM, BROKEN };
enum { DESCRIPTORS = 1 << 16 };
static _Atomic unsigned char stages[DESCRIPTORS];

/* Writes to a connection that was cut: output is kept, and then it can't be sent. There is room all the time, so the
   news of it is made here: a new size of the buffer brings them. */
static int cut(int socket)
{
    unsigned char stage = atomic_load(&stages[socket % DESCRIPTORS]);
    if (stage == WHOLE)
        return 0;
    atomic_store(&stages[socket % DESCRIPTORS], stage == BROKEN ? WHOLE : stage + 1);
    if (stage == BROKEN) {
        errno = ECONNRESET;
        return 1;
    }
    int size = 1 << 20;
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    errno = EAGAIN;
    return 1;
}

ssize_t send(int socket, const void *buffer, size_t length, int flags)
{
    REAL(send)
    int error;
    if (cut(socket))
        return -1;
    if (length > 1 && strikes(CUT, &error)) {
        atomic_store(&stages[socket % DESCRIPTORS], NO_ROOM);
        return real(socket, buffer, 1, flags);
    }
    if (length <= 1 || !strikes(SEND, &error))
        return real(socket, buffer, length, flags);
    return error ? fails(error) : real(socket, buffer, 1, flags);
}

int epoll_wait(int set, struct epoll_event *events, int most, int timeout)
{
    REAL(epoll_wait)
    int error;
    if (!strikes(EPOLL_WAIT, &error))
        return real(set, events, most, timeout);
    if (!error)
        return real(set, events, 1, timeout);
    usleep(INTERRUPTED_AFTER);
    return fails(error);
}

/* The same call to the server's leader, so the same record; it has no batches. */
int poll(struct pollfd *descriptors, nfds_t count, int timeout)
{
    REAL(poll)
    int error;
    if (!strikes(EPOLL_WAIT, &error) || !error)
        return real(descriptors, count, timeout);
    usleep(INTERRUPTED_AFTER);
    return fails(error);
}

/* Sleeping on a futex goes through here, in Rust's own library too. A wake is never touched. */
long syscall(long number, ...)
{
    REAL(syscall)
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    int operation = (int)b & FUTEX_CMD_MASK;
    int sleeps = number == SYS_futex && (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET);
    int error;
    if (sleeps && strikes(FUTEX_SLEEP, &error))
        return error ? fails(error) : 0;
    return real(number, a, b, c, d, e, f);
}
