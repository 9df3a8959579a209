/* Payload for the data ops of a program, made and verified by a helper thread.
 *
 * The ops are cut into batches, in order; a batch has one buffer, which holds the bytes of all its
 * data ops side by side. While the I/O thread uses one batch, the helper fills the next and compares
 * the last. So small ops cost one handover for many of them, large ones overlap one by one, and what
 * the I/O thread still had to wait for is counted.
 */
#ifndef CKPTSTORM_FEED_H
#define CKPTSTORM_FEED_H

#include <pthread.h>

#include "engine.h"

enum {
    BATCH_OPS_MAX = 1024,
    /* Room for many small ops; half of a core's own cache, so that they are written from there. */
    BATCH_BYTES_MIN = 256 << 10,
    MISMATCHES_KEPT = 8, /* contract.MISMATCHES_KEPT */
};

typedef struct {
    uint8_t *bytes;
    uint64_t first, stop;          /* the ops [first, stop) of the table */
    uint64_t left_count;           /* of them, not yet over */
    bool has_writes;
    int64_t moved[BATCH_OPS_MAX];  /* per op, its result; 0: nothing to compare */
} batch_t;

/* Where a read differed from the payload: what `payload.Mismatch` is made from. */
typedef struct {
    uint32_t file;
    uint64_t offset_bytes; /* of the first byte that differs, in the file */
    uint64_t differing_bytes;
    uint8_t expected, found;
    bool has_stamp;
    uint8_t stamp[STAMP_BYTES]; /* the first bytes of the page found there, when the read holds them */
} mismatch_t;

typedef struct feed {
    /* Fixed while the program lives. */
    const engine_t *engine;
    buffer_t memory;
    batch_t *batches;
    uint64_t batch_count, batch_bytes;
    uint64_t verify_below; /* a read is compared when the hash of its index is below: share * 2^32 */

    /* The helper's: which ops it cuts batches from. */
    uint64_t lap_first, lap_stop, next;
    bool is_ring; /* after the last op of the lap comes its first */

    /* Numbers of batches, ever rising; a batch sits in slot number % batch_count. Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t helper_wakes, taker_wakes;
    uint64_t filled, taken, used, checked; /* filled >= taken >= used >= checked >= filled - batch_count */
    bool is_ending, is_running;
    pthread_t helper;

    /* The I/O thread's: where it stands in the batch that it takes ops from. */
    batch_t *current;
    uint64_t current_bytes, current_stop, expected_index;
    int64_t wait_began_ns; /* 0: it does not wait */
    bool waits_for_verify;

    int64_t generate_wait_ns, verify_wait_ns;
    uint64_t verified_bytes, mismatch_count;
    mismatch_t mismatches[MISMATCHES_KEPT];
} feed_t;

/* The buffers that a program needs: how large a batch is, and how many there are. */
typedef struct {
    uint64_t batch_bytes, batch_count;
} feed_size_t;
feed_size_t feed_size(const engine_t *engine);
/* The room that one op takes in a buffer. */
uint64_t room_bytes(const engine_t *engine, const op_t *op);

/* Take the memory and start to fill from the first op. Returns 0 or minus the errno. */
int feed_take(feed_t *feed, const engine_t *engine, double verify_share);
/* Finish comparing, stop the helper; the memory stays. */
void feed_halt(feed_t *feed);
void feed_give_back(feed_t *feed);

/* The next op taken will be `first`; ops follow each other up to `lap_stop`, in a ring or once.
 * Returns 0 or minus the errno. */
int feed_seek(feed_t *feed, uint64_t first, uint64_t lap_first, uint64_t lap_stop, bool is_ring);

/* The bytes of op `index`, the next in order, and its batch; NULL when they are not ready: wait, and ask again. */
uint8_t *feed_next(feed_t *feed, uint64_t index, batch_t **batch);
/* Sleep until the next op's bytes may be ready, or for a moment. */
void feed_wait(feed_t *feed);
/* Op `index` of `batch` is over. */
void feed_done(feed_t *feed, batch_t *batch, uint64_t index, int64_t result);

#endif
