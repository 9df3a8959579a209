/* The least that a random read or write of 4 KiB can cost here: a loop of system calls and two clock reads each.
 *
 *     bare read|write FILE BLOCK_BYTES FILE_BYTES COUNT      prints ops a second
 *
 * What a benchmark reaches beyond this is not its own doing; what it loses to this is.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int count_of_words, char **words) {
    if (count_of_words != 6) return 2;
    const int writes = strcmp(words[1], "write") == 0, fd = open(words[2], O_RDWR);
    const uint64_t block_bytes = strtoull(words[3], NULL, 10), blocks = strtoull(words[4], NULL, 10) / block_bytes;
    const uint64_t count = strtoull(words[5], NULL, 10);
    uint8_t *bytes = aligned_alloc(4096, block_bytes);
    int64_t *times = malloc(2 * count * sizeof *times);
    off_t *offsets = malloc(count * sizeof *offsets);
    if (fd < 0 || !bytes || !times || !offsets) return 1;
    memset(bytes, 1, block_bytes);
    memset(times, 1, 2 * count * sizeof *times);
    uint64_t state = 0x9e3779b97f4a7c15; /* xorshift64; the offsets are drawn before the clock starts */
    for (uint64_t k = 0; k < count; k++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        offsets[k] = (off_t)(state % blocks * block_bytes);
    }
    for (uint64_t k = 0; k < count; k++) {
        times[2 * k] = now_ns();
        const ssize_t moved = writes ? pwrite(fd, bytes, block_bytes, offsets[k]) : pread(fd, bytes, block_bytes, offsets[k]);
        times[2 * k + 1] = now_ns();
        if (moved != (ssize_t)block_bytes) return 1;
    }
    printf("%.0f\n", (double)count / (double)(times[2 * count - 1] - times[0]) * 1e9);
    return 0;
}
