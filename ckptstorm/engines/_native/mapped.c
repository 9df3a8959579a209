/* Data through a mapping: what `mmap=True` of a framework does.
 *
 * A file is mapped whole by the first read of it, inside that read's time, until it is closed (or has
 * grown). A write maps the range that it covers, and unmaps it. Pages are touched by MADV_POPULATE_*,
 * which answers an I/O error or a full disk with an errno where a plain access would end the process
 * with SIGBUS.
 */
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

typedef struct {
    uint8_t *page, *bytes; /* the first page mapped; the first byte asked for */
    uint64_t size_bytes;
} mapping_t;

static int map_range(int fd, int protection, uint64_t length_bytes, uint64_t offset_bytes, mapping_t *mapping) {
    const uint64_t lead = offset_bytes % PAGE_BYTES;
    mapping->size_bytes = length_bytes + lead;
    mapping->page = mmap(NULL, mapping->size_bytes, protection, MAP_SHARED, fd, (off_t)(offset_bytes - lead));
    if (mapping->page == MAP_FAILED) return -errno;
    mapping->bytes = mapping->page + lead;
    return 0;
}

/* Touch every page. EFAULT and EHWPOISON are how the kernel says here that a page could not be had. */
static int populate(const mapping_t *mapping, int advice) {
    if (madvise(mapping->page, mapping->size_bytes, advice) == 0) return 0;
    if (errno == EINVAL) return 0; /* an older kernel: the copy will touch them */
    return errno == EFAULT || errno == EHWPOISON ? -EIO : -errno;
}

int64_t mapped_write(int fd, const uint8_t *bytes, uint64_t length_bytes, uint64_t offset_bytes) {
    struct stat about;
    mapping_t mapping = {0};
    if (fstat(fd, &about) < 0) return -errno;
    if (length_bytes == 0) return 0;
    const uint64_t stop = offset_bytes + length_bytes;
    if ((uint64_t)about.st_size < stop && ftruncate(fd, (off_t)stop) < 0) return -errno;
    int failure = map_range(fd, PROT_READ | PROT_WRITE, length_bytes, offset_bytes, &mapping);
    if (failure) return failure;
    failure = populate(&mapping, MADV_POPULATE_WRITE);
    if (!failure) memcpy(mapping.bytes, bytes, length_bytes);
    munmap(mapping.page, mapping.size_bytes);
    return failure ? failure : (int64_t)length_bytes;
}

void unmap(file_t *file) {
    if (file->mapped) munmap(file->mapped, file->mapped_bytes);
    file->mapped = NULL;
    file->mapped_bytes = 0;
}

/* Map the whole file, as long as it is now. */
static int map_whole(file_t *file) {
    struct stat about;
    if (fstat(file->fd, &about) < 0) return -errno;
    const uint64_t size = (uint64_t)about.st_size;
    if (size == file->mapped_bytes) return 0;
    unmap(file);
    if (size == 0) return 0;
    uint8_t *mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, file->fd, 0);
    if (mapped == MAP_FAILED) return -errno;
    file->mapped = mapped;
    file->mapped_bytes = size;
    return 0;
}

int64_t mapped_read(file_t *file, uint8_t *bytes, uint64_t length_bytes, uint64_t offset_bytes) {
    int failure = offset_bytes + length_bytes > file->mapped_bytes ? map_whole(file) : 0;
    if (failure) return failure;
    /* Short at the end: beyond it there is no page to map. */
    const uint64_t left = file->mapped_bytes > offset_bytes ? file->mapped_bytes - offset_bytes : 0;
    if (length_bytes > left) length_bytes = left;
    if (length_bytes == 0) return 0;
    const uint64_t lead = offset_bytes % PAGE_BYTES;
    const mapping_t part = {
        .page = file->mapped + (offset_bytes - lead),
        .bytes = file->mapped + offset_bytes,
        .size_bytes = length_bytes + lead,
    };
    failure = populate(&part, MADV_POPULATE_READ);
    if (!failure) memcpy(bytes, part.bytes, length_bytes);
    return failure ? failure : (int64_t)length_bytes;
}

int64_t mapped_sync(int fd, uint64_t length_bytes, uint64_t offset_bytes) {
    struct stat about;
    mapping_t mapping = {0};
    if (fstat(fd, &about) < 0) return -errno;
    if (length_bytes == 0) length_bytes = (uint64_t)about.st_size; /* 0: the whole file */
    if (length_bytes == 0) return 0;
    int failure = map_range(fd, PROT_READ, length_bytes, offset_bytes, &mapping);
    if (failure) return failure;
    if (msync(mapping.page, mapping.size_bytes, MS_SYNC) < 0) failure = -errno;
    munmap(mapping.page, mapping.size_bytes);
    return failure;
}
