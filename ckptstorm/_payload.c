#include "_payload.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the payload is defined little-endian");

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define MIX UINT64_C(0xBF58476D1CE4E5B9)
#define MIX2 UINT64_C(0x94D049BB133111EB)
#define STAMP_MAGIC UINT32_C(0x504B4343)

enum {
    PAGE_WORDS = PAGE_BYTES / 8,
    /* The words that the stamp touches, rounded up to a vector of eight: they are handled apart. */
    HEAD_WORDS = 8,
    HEAD_BYTES = HEAD_WORDS * 8,
};

/* A slice may start at any byte, so words stand at any address. */
typedef uint64_t __attribute__((aligned(1), may_alias)) word_t;

typedef struct {
    uint32_t magic, rank;
    uint64_t storm;
    int32_t round_index;
    uint32_t reserved;
    uint64_t file, offset_bytes;
} stamp_t;
_Static_assert(sizeof(stamp_t) == STAMP_BYTES, "payload.STAMP_DTYPE");

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t page_key(const image_t *image, uint64_t page) {
    uint64_t x = image->key + page * GOLDEN;
    x = (x ^ x >> 30) * MIX;
    x = (x ^ x >> 27) * MIX2;
    return x ^ x >> 31;
}

INLINE uint64_t word_at(uint64_t key, uint64_t index) {
    uint64_t x = key + index * GOLDEN;
    return (x ^ x >> 32) * MIX;
}

INLINE void make_head(const image_t *image, uint64_t page, uint64_t key, uint64_t head[HEAD_WORDS]) {
    for (unsigned j = 0; j < HEAD_WORDS; j++) head[j] = word_at(key, j);
    const stamp_t stamp = {
        .magic = STAMP_MAGIC,
        .rank = image->rank,
        .storm = image->storm,
        .round_index = image->round_index,
        .file = image->key,
        .offset_bytes = page * PAGE_BYTES,
    };
    memcpy(head, &stamp, sizeof stamp);
}

INLINE void fill_pages(const image_t *image, uint8_t *out, uint64_t page, uint64_t count) {
    for (; count; count--, page++, out += PAGE_BYTES) {
        const uint64_t key = page_key(image, page);
        uint64_t head[HEAD_WORDS];
        make_head(image, page, key, head);
        memcpy(out, head, sizeof head);
        word_t *words = (word_t *)out;
        for (unsigned j = HEAD_WORDS; j < PAGE_WORDS; j++) words[j] = word_at(key, j);
    }
}

/* The index of the first page that differs; `count` when none does. */
INLINE uint64_t compare_pages(const image_t *image, const uint8_t *found, uint64_t page, uint64_t count) {
    for (uint64_t done = 0; done < count; done++, page++, found += PAGE_BYTES) {
        const uint64_t key = page_key(image, page);
        const word_t *words = (const word_t *)found;
        uint64_t head[HEAD_WORDS], differing = 0;
        make_head(image, page, key, head);
        for (unsigned j = 0; j < HEAD_WORDS; j++) differing |= words[j] ^ head[j];
        for (unsigned j = HEAD_WORDS; j < PAGE_WORDS; j++) differing |= words[j] ^ word_at(key, j);
        if (differing) return done;
    }
    return count;
}

/* The same two loops for each instruction set; which one runs is decided once, when the module is loaded. */
typedef void fill_t(const image_t *, uint8_t *, uint64_t, uint64_t);
typedef uint64_t compare_t(const image_t *, const uint8_t *, uint64_t, uint64_t);

#define KERNELS(name, attributes)                                                                           \
    attributes static void fill_##name(const image_t *i, uint8_t *o, uint64_t p, uint64_t c) {              \
        fill_pages(i, o, p, c);                                                                             \
    }                                                                                                       \
    attributes static uint64_t compare_##name(const image_t *i, const uint8_t *f, uint64_t p, uint64_t c) { \
        return compare_pages(i, f, p, c);                                                                   \
    }

KERNELS(portable, )
static fill_t *fill_kernel = fill_portable;
static compare_t *compare_kernel = compare_portable;
static const char *instructions = "portable";

#if defined(__x86_64__)
KERNELS(avx2, __attribute__((target("avx2"))))
KERNELS(avx512, __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512"))))

__attribute__((constructor)) static void choose_kernels(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw")) {
        fill_kernel = fill_avx512, compare_kernel = compare_avx512, instructions = "avx512";
    } else if (__builtin_cpu_supports("avx2")) {
        fill_kernel = fill_avx2, compare_kernel = compare_avx2, instructions = "avx2";
    }
}
#endif

const char *payload_instructions(void) { return instructions; }

/* The part of a slice that lies within its first page: less than a page unless the slice starts at one. */
static uint64_t span_in_page(uint64_t length_bytes, uint64_t within) {
    const uint64_t left = PAGE_BYTES - within;
    return length_bytes < left ? length_bytes : left;
}

void payload_fill(const image_t *image, uint8_t *out, uint64_t length_bytes, uint64_t offset_bytes) {
    while (length_bytes) {
        const uint64_t page = offset_bytes / PAGE_BYTES, within = offset_bytes % PAGE_BYTES;
        uint64_t span;
        if (within == 0 && length_bytes >= PAGE_BYTES) {
            span = length_bytes - length_bytes % PAGE_BYTES;
            fill_kernel(image, out, page, span / PAGE_BYTES);
        } else {
            uint8_t whole[PAGE_BYTES];
            span = span_in_page(length_bytes, within);
            fill_kernel(image, whole, page, 1);
            memcpy(out, whole + within, span);
        }
        out += span, offset_bytes += span, length_bytes -= span;
    }
}

/* Byte by byte, within one page: only for the ends of a slice and for pages known to differ. */
static void compare_within(const image_t *image, const uint8_t *found, uint64_t at, uint64_t span,
                           uint64_t offset_bytes, difference_t *difference) {
    uint8_t whole[PAGE_BYTES];
    fill_kernel(image, whole, offset_bytes / PAGE_BYTES, 1);
    const uint8_t *expected = whole + offset_bytes % PAGE_BYTES;
    found += at;
    if (memcmp(expected, found, span) == 0) return;
    for (uint64_t k = 0; k < span; k++) {
        if (expected[k] == found[k]) continue;
        if (difference->differing_bytes++ == 0) {
            difference->first = at + k;
            difference->expected = expected[k];
            difference->found = found[k];
        }
    }
}

difference_t payload_check(const image_t *image, const uint8_t *found, uint64_t length_bytes, uint64_t offset_bytes) {
    difference_t difference = {0};
    for (uint64_t at = 0; at < length_bytes;) {
        const uint64_t offset = offset_bytes + at, within = offset % PAGE_BYTES, left = length_bytes - at;
        if (within == 0 && left >= PAGE_BYTES) {
            at += compare_kernel(image, found + at, offset / PAGE_BYTES, left / PAGE_BYTES) * PAGE_BYTES;
            if (length_bytes - at < PAGE_BYTES) continue;
            compare_within(image, found, at, PAGE_BYTES, offset_bytes + at, &difference);
            at += PAGE_BYTES;
        } else {
            const uint64_t span = span_in_page(left, within);
            compare_within(image, found, at, span, offset, &difference);
            at += span;
        }
    }
    return difference;
}
