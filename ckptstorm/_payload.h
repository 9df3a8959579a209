/* The payload's pages in C: the same bytes as `payload.py`, made and compared at memory speed.
 *
 * `payload.py` defines the content, and stays the reference; this exists because a rank must make
 * bytes faster than its storage takes them.
 */
#ifndef CKPTSTORM_PAYLOAD_H
#define CKPTSTORM_PAYLOAD_H

#include <stdint.h>

enum { PAGE_BYTES = 4096, STAMP_BYTES = 40 };

/* One file's content: `payload.FileImage`. */
typedef struct {
    uint64_t storm;
    uint64_t key;
    int32_t round_index;
    uint32_t rank;
} image_t;

/* How bytes that were read differ from the file's image. */
typedef struct {
    uint64_t differing_bytes; /* 0: they do not, and the rest means nothing */
    uint64_t first;           /* of the first byte that differs, within the bytes compared */
    uint8_t expected, found;  /* that byte */
} difference_t;

/* Write the image's bytes [offset_bytes, offset_bytes + length_bytes) to `out`. */
void payload_fill(const image_t *image, uint8_t *out, uint64_t length_bytes, uint64_t offset_bytes);

/* Compare `found` with the image's bytes [offset_bytes, offset_bytes + length_bytes). */
difference_t payload_check(const image_t *image, const uint8_t *found, uint64_t length_bytes, uint64_t offset_bytes);

/* The instruction set that the kernels run with on this machine. */
const char *payload_instructions(void);

#endif
