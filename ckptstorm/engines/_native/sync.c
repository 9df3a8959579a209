/* One op after the other: the modes sync, mmap and (for the cost of the instrument itself) null. */
#include <errno.h>

#include "feed.h"

/* The bytes for an op; false when the sink asked to stop while they were being made. */
static bool bytes_for(engine_t *engine, uint64_t index, uint8_t **bytes, batch_t **batch) {
    *bytes = engine->plain.bytes;
    if (!engine->feed) return true;
    while (!(*bytes = feed_next(engine->feed, index, batch))) {
        if (is_stop_asked(engine)) return false;
        feed_wait(engine->feed);
    }
    return true;
}

/* Run op `index`; its times go to place `at`. False when it was not run, because the sink asked to stop. */
bool run_one(engine_t *engine, uint64_t index, times_t times, uint64_t at) {
    const op_t *op = &engine->ops[index];
    batch_t *batch = NULL;
    uint8_t *bytes;
    if (!bytes_for(engine, index, &bytes, &batch) || !wait_until_due(engine, index)) return false;
    if (op->kind == KIND_CLOSE) unmap(&engine->files[op->file]);
    /* Between these two clock reads: the system call. Not included: making and comparing payload, bookkeeping. */
    const int64_t start_ns = now_ns();
    int64_t result = call(engine, op, bytes);
    const int64_t end_ns = now_ns();
    settle(engine, op, &result);
    times.start_ns[at] = start_ns;
    times.end_ns[at] = end_ns;
    times.result[at] = result;
    count_op(engine, op, result);
    if (batch) feed_done(engine->feed, batch, index, result);
    return true;
}

static bool pretend_one(engine_t *engine, uint64_t index, times_t times, uint64_t at) {
    const op_t *op = &engine->ops[index];
    if (!wait_until_due(engine, index)) return false;
    times.start_ns[at] = now_ns();
    times.end_ns[at] = now_ns();
    times.result[at] = is_data(op) ? (int64_t)op->length_bytes : 0;
    count_op(engine, op, times.result[at]);
    return true;
}

uint64_t run_in_turn(engine_t *engine, uint64_t first, uint64_t stop, times_t times) {
    bool (*const run)(engine_t *, uint64_t, times_t, uint64_t) = engine->mode == MODE_NULL ? pretend_one : run_one;
    uint64_t count = 0;
    int64_t last_ns = engine->deadline_ns == INT64_MAX ? 0 : now_ns();
    while (first + count < stop && !engine->has_failed && !is_stop_asked(engine) && last_ns < engine->deadline_ns) {
        if (!run(engine, first + count, times, count)) break;
        last_ns = times.end_ns[count++];
    }
    return count;
}
