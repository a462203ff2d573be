/*
 * Records what a server asks of the disk, and what it sends to clients (LD_PRELOAD).
 *
 * PACELINE_TRACE names the file that takes the records, PACELINE_FOLDER the folder whose files are
 * recorded. A record is four 64-bit words in the machine's own order (kind, inode, offset, length) and
 * `length` bytes; trace.rs has the other side. One mutex gives all records one order:
 *
 * - A write, a truncation or a removal is recorded before it is made, under the mutex. So the order of the
 *   records is the order of the calls, and a killed process has made no write that has no record.
 * - A sync has two records, before and after it. It makes durable what was recorded before the first one,
 *   and is sure only from the second one on.
 * - A send is recorded before it is made: from then on a client may know of it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN = 1, WRITE, TRUNCATE, SYNC_BEGINS, SYNC_ENDS, UNLINK, SEND };

/* The inode of each descriptor of a recorded file; zero for the other descriptors. */
enum { DESCRIPTORS = 1 << 16 };
static _Atomic uint64_t inodes[DESCRIPTORS];

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static const char *folder;

__attribute__((constructor)) static void open_trace(void)
{
    const char *path = getenv("PACELINE_TRACE");
    folder = getenv("PACELINE_FOLDER");
    if (path && folder)
        trace = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* The caller holds the mutex. A trace with a gap proves nothing: the process ends instead. */
static void record(enum kind kind, uint64_t inode, uint64_t offset, const void *bytes, uint64_t length)
{
    uint64_t head[4] = {kind, inode, offset, length};
    struct iovec parts[2] = {{head, sizeof head}, {(void *)bytes, length}};
    if (syscall(SYS_writev, trace, parts, 2) != (long)(sizeof head + length))
        abort();
}

/* The function that this library is before; found once. */
#define REAL(name)                                                                                         \
    static _Atomic(__typeof__(&name)) found;                                                               \
    __typeof__(&name) real = atomic_load(&found);                                                          \
    if (!real) {                                                                                           \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                                 \
        atomic_store(&found, real);                                                                        \
    }

static uint64_t inode_of(int descriptor)
{
    if (trace < 0 || descriptor < 0 || descriptor >= DESCRIPTORS)
        return 0;
    return atomic_load(&inodes[descriptor]);
}

/* The name within the folder: "." for the folder itself; NULL for what is not recorded. */
static const char *name_of(const char *path)
{
    size_t length = folder ? strlen(folder) : 0;
    if (trace < 0 || strncmp(path, folder, length) != 0)
        return NULL;
    if (path[length] == 0)
        return ".";
    int is_recorded = strstr(path + length, ".sqlite") && !strstr(path + length, "-shm");
    return path[length] == '/' && is_recorded ? path + length + 1 : NULL;
}

/* The caller holds the mutex. */
static int opened(int descriptor, const char *name)
{
    struct stat about;
    if (descriptor < 0 || fstat(descriptor, &about) != 0)
        return descriptor;
    if (descriptor >= DESCRIPTORS)
        abort();
    atomic_store(&inodes[descriptor], about.st_ino);
    record(OPEN, about.st_ino, 0, name, strlen(name));
    return descriptor;
}

#define OPENER(name)                                                                                       \
    int name(const char *path, int flags, ...)                                                             \
    {                                                                                                      \
        REAL(name)                                                                                         \
        va_list list;                                                                                      \
        va_start(list, flags);                                                                             \
        mode_t mode = va_arg(list, mode_t);                                                                \
        va_end(list);                                                                                      \
        const char *recorded = name_of(path);                                                              \
        if (!recorded)                                                                                     \
            return real(path, flags, mode);                                                                \
        pthread_mutex_lock(&order);                                                                        \
        int result = opened(real(path, flags, mode), recorded);                                            \
        pthread_mutex_unlock(&order);                                                                      \
        return result;                                                                                     \
    }

OPENER(open)
OPENER(open64)

int close(int descriptor)
{
    REAL(close)
    if (inode_of(descriptor))
        atomic_store(&inodes[descriptor], 0);
    return real(descriptor);
}

int unlink(const char *path)
{
    REAL(unlink)
    const char *name = name_of(path);
    if (!name)
        return real(path);
    pthread_mutex_lock(&order);
    record(UNLINK, 0, 0, name, strlen(name));
    int result = real(path);
    pthread_mutex_unlock(&order);
    return result;
}

ssize_t write(int descriptor, const void *bytes, size_t length)
{
    REAL(write)
    uint64_t inode = inode_of(descriptor);
    if (!inode)
        return real(descriptor, bytes, length);
    pthread_mutex_lock(&order);
    record(WRITE, inode, (uint64_t)lseek(descriptor, 0, SEEK_CUR), bytes, length);
    ssize_t result = real(descriptor, bytes, length);
    pthread_mutex_unlock(&order);
    return result;
}

#define WRITER(name, offset_type)                                                                          \
    ssize_t name(int descriptor, const void *bytes, size_t length, offset_type offset)                     \
    {                                                                                                      \
        REAL(name)                                                                                         \
        uint64_t inode = inode_of(descriptor);                                                             \
        if (!inode)                                                                                        \
            return real(descriptor, bytes, length, offset);                                                \
        pthread_mutex_lock(&order);                                                                        \
        record(WRITE, inode, (uint64_t)offset, bytes, length);                                             \
        ssize_t result = real(descriptor, bytes, length, offset);                                          \
        pthread_mutex_unlock(&order);                                                                      \
        return result;                                                                                     \
    }

WRITER(pwrite, off_t)
WRITER(pwrite64, off64_t)

#define TRUNCATER(name, offset_type)                                                                       \
    int name(int descriptor, offset_type length)                                                           \
    {                                                                                                      \
        REAL(name)                                                                                         \
        uint64_t inode = inode_of(descriptor);                                                             \
        if (!inode)                                                                                        \
            return real(descriptor, length);                                                               \
        pthread_mutex_lock(&order);                                                                        \
        record(TRUNCATE, inode, (uint64_t)length, NULL, 0);                                                \
        int result = real(descriptor, length);                                                             \
        pthread_mutex_unlock(&order);                                                                      \
        return result;                                                                                     \
    }

TRUNCATER(ftruncate, off_t)
TRUNCATER(ftruncate64, off64_t)

/* The number of the next sync, which its two records share. */
static uint64_t syncs;

#define SYNCER(name)                                                                                       \
    int name(int descriptor)                                                                               \
    {                                                                                                      \
        REAL(name)                                                                                         \
        uint64_t inode = inode_of(descriptor);                                                             \
        if (!inode)                                                                                        \
            return real(descriptor);                                                                       \
        pthread_mutex_lock(&order);                                                                        \
        uint64_t number = syncs++;                                                                         \
        record(SYNC_BEGINS, inode, number, NULL, 0);                                                       \
        pthread_mutex_unlock(&order);                                                                      \
        int result = real(descriptor);                                                                     \
        if (result == 0) {                                                                                 \
            pthread_mutex_lock(&order);                                                                    \
            record(SYNC_ENDS, inode, number, NULL, 0);                                                     \
            pthread_mutex_unlock(&order);                                                                  \
        }                                                                                                  \
        return result;                                                                                     \
    }

SYNCER(fsync)
SYNCER(fdatasync)

static void sends(const void *bytes, size_t length)
{
    if (trace < 0)
        return;
    pthread_mutex_lock(&order);
    record(SEND, 0, 0, bytes, length);
    pthread_mutex_unlock(&order);
}

ssize_t send(int socket, const void *bytes, size_t length, int flags)
{
    REAL(send)
    sends(bytes, length);
    return real(socket, bytes, length, flags);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    REAL(writev)
    if (inode_of(descriptor))
        abort(); /* No such write is recorded. */
    for (int part = 0; part < count; part++)
        sends(parts[part].iov_base, parts[part].iov_len);
    return real(descriptor, parts, count);
}
