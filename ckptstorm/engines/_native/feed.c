#define _GNU_SOURCE
#include "feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_NS = 20000000, DIRECT_ALIGNMENT = PAGE_BYTES, CACHE_LINE_BYTES = 64 };

/* Verifying a share picks whole reads by the multiplicative hash of their index (Knuth's constant), as posix does. */
static const uint64_t PICK = 2654435761;

uint64_t room_bytes(const engine_t *engine, const op_t *op) {
    const uint64_t alignment = engine->is_direct ? DIRECT_ALIGNMENT : CACHE_LINE_BYTES;
    return is_data(op) ? (op->length_bytes + alignment - 1) / alignment * alignment : 0;
}

feed_size_t feed_size(const engine_t *engine) {
    uint64_t largest = 0, total = 0;
    for (uint64_t k = 0; k < engine->op_count; k++) {
        const uint64_t room = room_bytes(engine, &engine->ops[k]);
        if (room > largest) largest = room;
        total += room;
    }
    uint64_t batch_bytes = total < BATCH_BYTES_MIN ? total : BATCH_BYTES_MIN;
    if (batch_bytes < largest) batch_bytes = largest;
    batch_bytes = (batch_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (batch_bytes == 0) return (feed_size_t){0, 0};
    /* Two ops for each place in the queue: one under way, one made or compared meanwhile. */
    const uint64_t count = (2 * engine->queue_depth * largest + batch_bytes - 1) / batch_bytes;
    const uint64_t least = engine->queue_depth > 1 ? 4 : 2; /* one late op in flight must not hold up the rest */
    return (feed_size_t){batch_bytes, count < least ? least : count};
}

static batch_t *slot_of(feed_t *feed, uint64_t number) { return &feed->batches[number % feed->batch_count]; }

/* ---- the helper ------------------------------------------------------------------------------------------ */

static void fill(feed_t *feed, batch_t *batch) {
    const engine_t *engine = feed->engine;
    uint64_t used_bytes = 0;
    batch->first = feed->next;
    batch->has_writes = false;
    for (; feed->next < feed->lap_stop && feed->next - batch->first < BATCH_OPS_MAX; feed->next++) {
        const op_t *op = &engine->ops[feed->next];
        const uint64_t room = room_bytes(engine, op);
        if (used_bytes + room > feed->batch_bytes) break;
        if (is_write(op)) {
            payload_fill(&engine->files[op->file].image, batch->bytes + used_bytes, op->length_bytes, op->offset_bytes);
            batch->has_writes = true;
        }
        used_bytes += room;
    }
    batch->stop = feed->next;
    batch->left_count = batch->stop - batch->first;
    memset(batch->moved, 0, batch->left_count * sizeof batch->moved[0]);
    if (feed->is_ring && feed->next == feed->lap_stop) feed->next = feed->lap_first;
}

static void keep_mismatch(feed_t *feed, const op_t *op, const uint8_t *found, uint64_t moved, difference_t difference) {
    if (feed->mismatch_count++ >= MISMATCHES_KEPT) return;
    mismatch_t *kept = &feed->mismatches[feed->mismatch_count - 1];
    const uint64_t at = op->offset_bytes + difference.first, page = at - at % PAGE_BYTES;
    *kept = (mismatch_t){op->file, at, difference.differing_bytes, difference.expected, difference.found, false, {0}};
    if (page < op->offset_bytes || page - op->offset_bytes + STAMP_BYTES > moved) return;
    kept->has_stamp = true;
    memcpy(kept->stamp, found + (page - op->offset_bytes), STAMP_BYTES);
}

static void check(feed_t *feed, const batch_t *batch) {
    const engine_t *engine = feed->engine;
    const uint8_t *bytes = batch->bytes;
    for (uint64_t index = batch->first; index < batch->stop; index++) {
        const op_t *op = &engine->ops[index];
        const int64_t moved = batch->moved[index - batch->first];
        if (is_read(op) && moved > 0 && (index * PICK & UINT32_MAX) < feed->verify_below) {
            const image_t *image = &engine->files[op->file].image;
            const difference_t difference = payload_check(image, bytes, (uint64_t)moved, op->offset_bytes);
            if (difference.differing_bytes) keep_mismatch(feed, op, bytes, (uint64_t)moved, difference);
            feed->verified_bytes += (uint64_t)moved;
        }
        bytes += room_bytes(engine, op);
    }
}

static void *help(void *argument) {
    feed_t *feed = argument;
    pthread_mutex_lock(&feed->lock);
    for (;;) {
        const bool can_check = feed->checked < feed->used;
        const bool can_fill =
            !feed->is_ending && feed->next < feed->lap_stop && feed->filled < feed->checked + feed->batch_count;
        const bool is_starved = feed->filled == feed->taken;
        if (can_fill && (is_starved || !can_check)) {
            batch_t *batch = slot_of(feed, feed->filled);
            pthread_mutex_unlock(&feed->lock);
            fill(feed, batch);
            pthread_mutex_lock(&feed->lock);
            feed->filled++;
            pthread_cond_signal(&feed->taker_wakes);
        } else if (can_check) {
            const batch_t *batch = slot_of(feed, feed->checked);
            pthread_mutex_unlock(&feed->lock);
            check(feed, batch);
            pthread_mutex_lock(&feed->lock);
            feed->checked++;
        } else if (feed->is_ending) {
            break;
        } else {
            pthread_cond_wait(&feed->helper_wakes, &feed->lock);
        }
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

/* ---- starting, stopping ---------------------------------------------------------------------------------- */

static int start(feed_t *feed, uint64_t first, uint64_t lap_first, uint64_t lap_stop, bool is_ring) {
    feed->lap_first = lap_first, feed->lap_stop = lap_stop, feed->is_ring = is_ring;
    feed->next = feed->expected_index = first;
    feed->filled = feed->taken = feed->used = feed->checked = 0;
    feed->current = NULL;
    feed->wait_began_ns = 0;
    feed->is_ending = false;
    const int failure = pthread_create(&feed->helper, NULL, help, feed);
    feed->is_running = failure == 0;
    return -failure;
}

int feed_take(feed_t *feed, const engine_t *engine, double verify_share) {
    const feed_size_t size = feed_size(engine);
    pthread_condattr_t monotonic;
    feed->engine = engine;
    feed->batch_bytes = size.batch_bytes, feed->batch_count = size.batch_count;
    feed->verify_below = (uint64_t)((verify_share < 1 ? verify_share : 1) * ((double)UINT32_MAX + 1));
    const int failure = buffer_take(&feed->memory, size.batch_bytes * size.batch_count);
    if (failure) return failure;
    feed->batches = calloc(size.batch_count, sizeof *feed->batches);
    if (!feed->batches) return -ENOMEM;
    for (uint64_t k = 0; k < size.batch_count; k++) feed->batches[k].bytes = feed->memory.bytes + k * size.batch_bytes;
    pthread_mutex_init(&feed->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&feed->helper_wakes, NULL);
    pthread_cond_init(&feed->taker_wakes, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return start(feed, 0, 0, engine->op_count, false);
}

void feed_halt(feed_t *feed) {
    if (!feed->is_running) return;
    pthread_mutex_lock(&feed->lock);
    feed->used = feed->taken; /* of a batch that was not used up, what did move is compared all the same */
    feed->is_ending = true;
    pthread_cond_signal(&feed->helper_wakes);
    pthread_mutex_unlock(&feed->lock);
    pthread_join(feed->helper, NULL);
    feed->is_running = false;
}

void feed_give_back(feed_t *feed) {
    feed_halt(feed);
    buffer_give_back(&feed->memory);
    free(feed->batches);
    feed->batches = NULL;
}

int feed_seek(feed_t *feed, uint64_t first, uint64_t lap_first, uint64_t lap_stop, bool is_ring) {
    if (feed->is_running && feed->expected_index == first && feed->is_ring == is_ring &&
        (!is_ring || (feed->lap_first == lap_first && feed->lap_stop == lap_stop)))
        return 0; /* it has been filling from there already */
    feed_halt(feed);
    return start(feed, first, lap_first, lap_stop, is_ring);
}

/* ---- the I/O thread -------------------------------------------------------------------------------------- */

static void end_of_wait(feed_t *feed) {
    const int64_t waited_ns = now_ns() - feed->wait_began_ns;
    feed->wait_began_ns = 0;
    if (feed->waits_for_verify || !feed->current->has_writes) feed->verify_wait_ns += waited_ns;
    else feed->generate_wait_ns += waited_ns;
}

static bool open_batch(feed_t *feed) {
    pthread_mutex_lock(&feed->lock);
    const bool is_ready = feed->filled > feed->taken;
    if (is_ready) {
        feed->current = slot_of(feed, feed->taken++);
    } else if (!feed->wait_began_ns) {
        feed->wait_began_ns = now_ns();
        feed->waits_for_verify = feed->checked + feed->batch_count <= feed->filled;
    }
    pthread_mutex_unlock(&feed->lock);
    if (!is_ready) return false;
    feed->current_bytes = 0;
    feed->current_stop = feed->current->stop; /* once its ops are over, the batch is the helper's to fill anew */
    if (feed->wait_began_ns) end_of_wait(feed);
    return true;
}

uint8_t *feed_next(feed_t *feed, uint64_t index, batch_t **batch) {
    if ((!feed->current || feed->expected_index == feed->current_stop) && !open_batch(feed)) return NULL;
    uint8_t *bytes = feed->current->bytes + feed->current_bytes;
    feed->current_bytes += room_bytes(feed->engine, &feed->engine->ops[index]);
    feed->expected_index = index + 1;
    *batch = feed->current;
    return bytes;
}

void feed_wait(feed_t *feed) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_NS;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&feed->lock);
    if (feed->filled == feed->taken) pthread_cond_timedwait(&feed->taker_wakes, &feed->lock, &until);
    pthread_mutex_unlock(&feed->lock);
}

void feed_done(feed_t *feed, batch_t *batch, uint64_t index, int64_t result) {
    batch->moved[index - batch->first] = result;
    if (--batch->left_count) return;
    pthread_mutex_lock(&feed->lock);
    while (feed->used < feed->taken && slot_of(feed, feed->used)->left_count == 0) feed->used++;
    pthread_cond_signal(&feed->helper_wakes);
    pthread_mutex_unlock(&feed->lock);
}
