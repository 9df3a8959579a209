/* Ops as system calls: the same calls, by path below the storm's root, as the posix engine's `calls.py`. */
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
    PARTS_MAX = 255,          /* `flags` of a writev is one byte */
    XATTR_VALUE_MAX = 65536,  /* XATTR_SIZE_MAX of the kernel: more is E2BIG whatever stands there */
    LOCK_OPEN_FILE = 0x10,    /* in `flags` of lock and unlock: an OFD lock of the op's range, not flock(2) */
    DEFAULT_DIRECTORY_MODE = 0777,
};

static const char xattr_value[XATTR_VALUE_MAX];

static inline int64_t answer(long returned) { return returned < 0 ? -(int64_t)errno : returned; }
/* For calls that answer with something other than bytes. */
static inline int64_t done(long returned) { return returned < 0 ? -(int64_t)errno : 0; }

static const char *name_of(const engine_t *engine, uint64_t file) { return engine->files[file].name; }
static int fd_of(const engine_t *engine, const op_t *op) { return engine->files[op->file].fd; }

static int64_t call_open(const engine_t *engine, const op_t *op) {
    int flags = (int)(op->length_bytes & 0xFFFFFFFF) | O_CLOEXEC | O_NOFOLLOW;
    if (!(flags & O_DIRECTORY)) {
        /* A shared mapping is written through a file that may also be read. */
        if (engine->mode == MODE_MMAP && (flags & O_ACCMODE) == O_WRONLY) flags = (flags & ~O_ACCMODE) | O_RDWR;
    }
    return answer(openat(engine->root_fd, name_of(engine, op->file), flags, (mode_t)(op->length_bytes >> 32)));
}

static int64_t call_writev(int fd, uint8_t *bytes, const op_t *op) {
    struct iovec parts[PARTS_MAX];
    const unsigned count = op->flags ? op->flags : 1;
    const uint64_t each = op->length_bytes / count;
    for (unsigned k = 0; k < count; k++) parts[k] = (struct iovec){bytes + k * each, each};
    parts[count - 1].iov_len = op->length_bytes - (count - 1) * each;
    return answer(pwritev(fd, parts, (int)count, (off_t)op->offset_bytes));
}

static int64_t call_data(engine_t *engine, const op_t *op, uint8_t *bytes) {
    file_t *file = &engine->files[op->file];
    const int fd = file->fd;
    const bool is_mapped = engine->mode == MODE_MMAP;
    switch (op->kind) {
    case KIND_WRITE:
        if (is_mapped) return mapped_write(fd, bytes, op->length_bytes, op->offset_bytes);
        return answer(pwrite(fd, bytes, op->length_bytes, (off_t)op->offset_bytes));
    case KIND_WRITEV:
        if (is_mapped) return mapped_write(fd, bytes, op->length_bytes, op->offset_bytes);
        return call_writev(fd, bytes, op);
    case KIND_READ:
        if (is_mapped) return mapped_read(file, bytes, op->length_bytes, op->offset_bytes);
        return answer(pread(fd, bytes, op->length_bytes, (off_t)op->offset_bytes));
    default:
        return mapped_read(file, bytes, op->length_bytes, op->offset_bytes);
    }
}

static int open_directory(const engine_t *engine, const op_t *op) {
    return openat(engine->root_fd, name_of(engine, op->file), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Open a directory, fsync it, close it: what makes a rename in it durable. */
static int64_t call_fsync_dir(const engine_t *engine, const op_t *op) {
    const int fd = open_directory(engine, op);
    if (fd < 0) return -errno;
    const int64_t result = done(fsync(fd));
    close(fd);
    return result;
}

/* Open a directory, read all its entries, close it. */
static int64_t call_readdir(const engine_t *engine, const op_t *op) {
    char entries[32768]; /* as much as a C library asks for at once */
    const int fd = open_directory(engine, op);
    long got;
    if (fd < 0) return -errno;
    while ((got = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0) continue;
    const int64_t result = done(got);
    close(fd);
    return result;
}

static int64_t call_lock(int fd, const op_t *op, bool is_unlock) {
    const int how = op->flags & ~LOCK_OPEN_FILE;
    if (op->flags & LOCK_OPEN_FILE) {
        const struct flock range = {
            .l_type = is_unlock ? F_UNLCK : how == LOCK_SH ? F_RDLCK : F_WRLCK,
            .l_whence = SEEK_SET,
            .l_start = (off_t)op->offset_bytes,
            .l_len = (off_t)op->length_bytes, /* 0: to the end, however far it moves */
        };
        return done(fcntl(fd, F_OFD_SETLKW, &range));
    }
    return done(flock(fd, is_unlock ? LOCK_UN : how ? how : LOCK_EX));
}

static int64_t call_copy(const engine_t *engine, const op_t *op) {
    loff_t from = 0, to = 0;
    const int target = engine->files[op->offset_bytes].fd;
    return answer(syscall(SYS_copy_file_range, fd_of(engine, op), &from, target, &to, op->length_bytes, 0));
}

static int64_t call_on_fd(const engine_t *engine, const op_t *op) {
    const int fd = fd_of(engine, op);
    const off_t offset = (off_t)op->offset_bytes, length = (off_t)op->length_bytes;
    struct stat about;
    struct statvfs system;
    switch (op->kind) {
    case KIND_MSYNC: return mapped_sync(fd, op->length_bytes, op->offset_bytes);
    case KIND_FSYNC: return done(fsync(fd));
    case KIND_FDATASYNC: return done(fdatasync(fd));
    case KIND_SYNCFS: return done(syncfs(fd));
    case KIND_CLOSE: return done(close(fd));
    case KIND_FSTAT: return done(fstat(fd, &about));
    case KIND_STATFS: return done(fstatvfs(fd, &system));
    case KIND_TRUNCATE: return done(ftruncate(fd, length));
    case KIND_FALLOCATE: return done(fallocate(fd, 0, offset, length));
    case KIND_FADVISE: return -(int64_t)posix_fadvise(fd, offset, length, op->flags);
    case KIND_LOCK: return call_lock(fd, op, false);
    case KIND_UNLOCK: return call_lock(fd, op, true);
    case KIND_SETXATTR:
        return done(fsetxattr(fd, "user.ckptstorm", xattr_value, op->length_bytes ? op->length_bytes : 1, 0));
    default: return -ENOSYS;
    }
}

/* The call of an op, and nothing else: this is what stands between the two clock reads. */
int64_t call(engine_t *engine, const op_t *op, uint8_t *bytes) {
    const int root = engine->root_fd;
    const char *name = name_of(engine, op->file);
    struct stat about;
    switch (op->kind) {
    case KIND_WRITE:
    case KIND_WRITEV:
    case KIND_READ:
    case KIND_MMAP_READ: return call_data(engine, op, bytes);
    case KIND_OPEN: return call_open(engine, op);
    case KIND_MKDIR:
        return done(mkdirat(root, name, op->length_bytes ? (mode_t)op->length_bytes : DEFAULT_DIRECTORY_MODE));
    case KIND_STAT: return done(fstatat(root, name, &about, 0));
    case KIND_UNLINK: return done(unlinkat(root, name, 0));
    case KIND_RMDIR: return done(unlinkat(root, name, AT_REMOVEDIR));
    case KIND_RENAME: return done(renameat(root, name, root, name_of(engine, op->offset_bytes)));
    case KIND_LINK: return done(linkat(root, name, root, name_of(engine, op->offset_bytes), 0));
    case KIND_UTIME: return done(utimensat(root, name, NULL, 0)); /* the server's idea of now */
    case KIND_CHMOD: return done(fchmodat(root, name, (mode_t)op->length_bytes, 0));
    case KIND_READDIR: return call_readdir(engine, op);
    case KIND_FSYNC_DIR: return call_fsync_dir(engine, op);
    case KIND_COPY: return call_copy(engine, op);
    default: return call_on_fd(engine, op);
    }
}

/* After the second clock read: keep what open returned, forget what close took, look whether O_DIRECT holds. */
void settle(engine_t *engine, const op_t *op, int64_t *result) {
    file_t *file = &engine->files[op->file];
    if (op->kind == KIND_CLOSE) file->fd = -1;
    if (op->kind != KIND_OPEN || *result < 0) return;
    unmap(file);
    if (file->fd >= 0) close(file->fd);
    file->fd = (int)*result;
    *result = 0;
    const int flags = fcntl(file->fd, F_GETFL);
    if (flags >= 0 && flags & O_DIRECT) engine->direct_file_count++;
}

/* Close what is still open (after a stop or an error). */
void close_files(engine_t *engine) {
    for (uint32_t k = 0; k < engine->file_count; k++) {
        unmap(&engine->files[k]);
        if (engine->files[k].fd >= 0) close(engine->files[k].fd);
        engine->files[k].fd = -1;
    }
}
