#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Take zeroed memory. A buffer of at least a huge page starts at a huge page's boundary, so that
 * O_DIRECT pins one page where it would pin 512. Returns 0 or minus the errno. */
int buffer_take(buffer_t *buffer, uint64_t size_bytes) {
    const uint64_t spare = size_bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
    if (size_bytes == 0) return 0;
    uint8_t *mapped = mmap(NULL, size_bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return -errno;
    buffer->bytes = mapped;
    buffer->size_bytes = size_bytes;
    if (spare) {
        uint64_t lead = -(uintptr_t)mapped % HUGE_PAGE_BYTES;
        if (lead) munmap(mapped, lead);
        buffer->bytes += lead;
        const uint64_t page_end = (size_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        if (spare > lead) munmap(buffer->bytes + page_end, spare - lead);
        madvise(buffer->bytes, size_bytes, MADV_HUGEPAGE); /* advice: small pages do as well */
    }
    memset(buffer->bytes, 0, size_bytes); /* touched here: no page fault falls into the storm */
    return 0;
}

void buffer_give_back(buffer_t *buffer) {
    if (buffer->bytes) munmap(buffer->bytes, buffer->size_bytes);
    *buffer = (buffer_t){0};
}

/* Bytes that do not compress, for runs without a payload. */
void buffer_scramble(buffer_t *buffer) {
    const image_t image = {.key = (uintptr_t)buffer->bytes};
    payload_fill(&image, buffer->bytes, buffer->size_bytes, 0);
}
