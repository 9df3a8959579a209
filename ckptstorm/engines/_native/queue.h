/* Several data ops in flight: what io_uring and libaio share.
 *
 * Ordering: data ops are submitted in program order and may overtake each other within the queue's
 * depth; a read that overlaps a write in flight (or the reverse) waits for it. Every other op waits
 * for all before it, and is then a plain system call.
 */
#ifndef CKPTSTORM_QUEUE_H
#define CKPTSTORM_QUEUE_H

#include <sys/uio.h>

#include "feed.h"

enum { QUEUE_DEPTH_MAX = 4096, WAIT_NS_MAX = 20000000 };

/* One data op in flight. */
typedef struct {
    uint64_t index;
    const op_t *op;
    batch_t *batch;
    uint8_t *bytes;
    uint8_t *own_bytes;  /* where no feed is */
    struct iovec *parts; /* of a writev */
    unsigned part_count;
    bool is_in_flight;
} request_t;

typedef struct {
    request_t *request;
    int64_t result;
} completion_t;

/* How requests reach the kernel. After `bind`, all calls are made by one thread, until another is bound. */
typedef struct {
    int (*take)(engine_t *engine);
    void (*give_back)(struct queue *queue);
    int (*bind)(engine_t *engine);
    void (*push)(struct queue *queue, request_t *request, const file_t *file);
    /* Submit what was pushed; sleep until `least` (0 or 1) ops are over, or for a moment; note those in `completed`. */
    void (*exchange)(struct queue *queue, uint32_t least);
    /* The file has a new descriptor, or will have none (-1). */
    void (*set_file)(struct queue *queue, uint32_t file, int fd);
} backend_t;

typedef struct queue {
    const backend_t *backend;
    void *kernel; /* the backend's own */
    uint32_t depth;
    request_t *requests;
    request_t **idle;
    uint32_t idle_count, pushed_count, write_count, read_count;
    request_t **pushed; /* not yet with the kernel, in order */
    completion_t *completed;
    uint32_t completed_count;
    struct iovec *parts;
    int64_t wait_ns;   /* how long `exchange` may sleep for a completion */
    int64_t halted_ns; /* since when no more is submitted; 0: it goes on */
    bool is_abandoned; /* stopped with ops that would not end: their memory belongs to the kernel until it lets go */
} queue_t;

static inline uint32_t in_flight_count(const queue_t *queue) { return queue->depth - queue->idle_count; }

static inline void complete(queue_t *queue, request_t *request, int64_t result) {
    queue->completed[queue->completed_count++] = (completion_t){request, result};
}

/* The kernel took the first `count` of what was pushed. */
static inline void submitted(queue_t *queue, uint32_t count) {
    queue->pushed_count -= count;
    for (uint32_t k = 0; k < queue->pushed_count; k++) queue->pushed[k] = queue->pushed[k + count];
}

/* The kernel moves at most this much in one call, whatever is asked (MAX_RW_COUNT). */
enum { TRANSFER_BYTES_MAX = 0x7ffff000 };
static inline uint32_t transfer_bytes(const op_t *op) {
    return (uint32_t)(op->length_bytes < TRANSFER_BYTES_MAX ? op->length_bytes : TRANSFER_BYTES_MAX);
}

extern const backend_t URING, AIO;

/* 0 when the kernel offers the calls to this process, else the errno. */
int uring_probe(void);
int aio_probe(void);

#endif
