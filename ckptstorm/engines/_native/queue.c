#include "queue.h"

#include <errno.h>
#include <stdlib.h>

/* A stop is obeyed within 100 ms: what is in flight gets most of that to end. */
enum { LET_GO_NS = 80000000 };

/* How many ops one system call submits. From three on the kernel holds them back until it has seen the last (a plug),
 * and a device that could have begun with the first stands still: 15 % of the rate at depth 32 on a virtual disk. */
enum { SUBMITTED_TOGETHER = 2 };

static uint8_t parts_max(const engine_t *engine) {
    uint8_t most = 1;
    for (uint64_t k = 0; k < engine->op_count; k++)
        if (engine->ops[k].kind == KIND_WRITEV && engine->ops[k].flags > most) most = engine->ops[k].flags;
    return most;
}

int queue_take(engine_t *engine) {
    queue_t *queue = engine->queue = calloc(1, sizeof *queue);
    const uint32_t depth = engine->queue_depth;
    const uint8_t parts = parts_max(engine);
    if (!queue) return -ENOMEM;
    queue->backend = engine->mode == MODE_IO_URING ? &URING : &AIO;
    queue->depth = queue->idle_count = depth;
    queue->requests = calloc(depth, sizeof *queue->requests);
    queue->idle = calloc(depth, sizeof *queue->idle);
    queue->pushed = calloc(depth, sizeof *queue->pushed);
    queue->completed = calloc(depth, sizeof *queue->completed);
    queue->parts = calloc((size_t)depth * parts, sizeof *queue->parts);
    if (!queue->requests || !queue->idle || !queue->pushed || !queue->completed || !queue->parts) return -ENOMEM;
    const uint64_t each = engine->plain.size_bytes / depth;
    for (uint32_t k = 0; k < depth; k++) {
        queue->requests[k].parts = queue->parts + (size_t)k * parts;
        queue->requests[k].own_bytes = engine->plain.bytes + k * each;
        queue->idle[depth - 1 - k] = &queue->requests[k]; /* the first is on top: the least memory is touched */
    }
    return queue->backend->take(engine);
}

void queue_give_back(engine_t *engine) {
    queue_t *queue = engine->queue;
    if (!queue) return;
    if (queue->kernel) queue->backend->give_back(queue);
    free(queue->requests);
    free(queue->idle);
    free(queue->pushed);
    free(queue->completed);
    free(queue->parts);
    free(queue);
    engine->queue = NULL;
}

int queue_bind(engine_t *engine) { return engine->queue->backend->bind(engine); }

static bool overlaps(const op_t *one, const op_t *other) {
    return one->file == other->file && one->offset_bytes < other->offset_bytes + other->length_bytes &&
           other->offset_bytes < one->offset_bytes + one->length_bytes;
}

/* Must the op wait, lest a read see half of a write that was to be before or after it? */
static bool conflicts(const queue_t *queue, const op_t *op) {
    if ((is_write(op) ? queue->read_count : queue->write_count) == 0) return false;
    for (uint32_t k = 0; k < queue->depth; k++) {
        const request_t *request = &queue->requests[k];
        if (request->is_in_flight && is_write(request->op) != is_write(op) && overlaps(request->op, op)) return true;
    }
    return false;
}

static void split(request_t *request) {
    const op_t *op = request->op;
    const uint64_t each = op->flags ? op->length_bytes / op->flags : 0;
    request->part_count = op->kind == KIND_WRITEV && op->flags ? op->flags : 1;
    for (unsigned k = 0; k < request->part_count; k++)
        request->parts[k] = (struct iovec){request->bytes + k * each, each};
    request->parts[request->part_count - 1].iov_len = op->length_bytes - (request->part_count - 1) * each;
}

/* Push op `index`; false when its bytes are not ready. */
static bool push(engine_t *engine, uint64_t index) {
    queue_t *queue = engine->queue;
    const op_t *op = &engine->ops[index];
    batch_t *batch = NULL;
    request_t *request = queue->idle[queue->idle_count - 1];
    uint8_t *bytes = engine->feed ? feed_next(engine->feed, index, &batch) : request->own_bytes;
    if (!bytes) return false;
    queue->idle_count--;
    request->index = index, request->op = op, request->batch = batch, request->bytes = bytes;
    request->is_in_flight = true;
    if (op->kind == KIND_WRITEV) split(request);
    if (is_write(op)) queue->write_count++;
    else queue->read_count++;
    queue->pushed[queue->pushed_count++] = request;
    queue->backend->push(queue, request, &engine->files[op->file]);
    return true;
}

static void finish(engine_t *engine, completion_t completion, int64_t end_ns, times_t times, uint64_t first) {
    queue_t *queue = engine->queue;
    request_t *request = completion.request;
    const uint64_t at = request->index - first;
    times.end_ns[at] = end_ns;
    times.result[at] = completion.result;
    count_op(engine, request->op, completion.result);
    if (request->batch) feed_done(engine->feed, request->batch, request->index, completion.result);
    if (is_write(request->op)) queue->write_count--;
    else queue->read_count--;
    request->is_in_flight = false;
    queue->idle[queue->idle_count++] = request;
}

static void exchange(engine_t *engine, uint32_t least, times_t times, uint64_t first) {
    queue_t *queue = engine->queue;
    queue->completed_count = 0;
    /* Between these two clock reads, for an op: all that the kernel did with it. Also included: the few ops that were
     * submitted, or found to be over, in the same call. Not included: making and comparing payload, bookkeeping. */
    const int64_t start_ns = now_ns();
    for (uint32_t k = 0; k < queue->pushed_count; k++) times.start_ns[queue->pushed[k]->index - first] = start_ns;
    queue->backend->exchange(queue, least);
    if (queue->completed_count == 0) return;
    const int64_t end_ns = now_ns();
    for (uint32_t k = 0; k < queue->completed_count; k++) finish(engine, queue->completed[k], end_ns, times, first);
}

/* Should no more be submitted? */
static bool is_halted(engine_t *engine) {
    queue_t *queue = engine->queue;
    const bool is_late = engine->deadline_ns != INT64_MAX && now_ns() >= engine->deadline_ns;
    if (!engine->has_failed && !is_stop_asked(engine) && !is_late) return false;
    if (!queue->halted_ns) queue->halted_ns = now_ns();
    return true;
}

/* Ops that are still with the kernel long after a stop was asked for are left with it: they count as not run. */
static bool abandons(engine_t *engine, times_t times, uint64_t first) {
    queue_t *queue = engine->queue;
    if (!is_stop_asked(engine) || now_ns() - queue->halted_ns < LET_GO_NS) return false;
    for (uint32_t k = 0; k < queue->depth; k++) {
        const uint64_t at = queue->requests[k].index - first;
        if (queue->requests[k].is_in_flight) times.start_ns[at] = times.end_ns[at] = times.result[at] = 0;
    }
    return queue->is_abandoned = true;
}

/* Push ops that may go now, up to as many as are submitted together. Returns the index after them. */
static uint64_t push_some(engine_t *engine, uint64_t index, uint64_t stop) {
    const queue_t *queue = engine->queue;
    while (index < stop && queue->idle_count && queue->pushed_count < SUBMITTED_TOGETHER) {
        const op_t *op = &engine->ops[index];
        if (!is_data(op) || op->kind == KIND_MMAP_READ || until_due_ns(engine, index) > 0) break;
        if (conflicts(queue, op) || !push(engine, index)) break;
        index++;
    }
    return index;
}

/* A completion may be waited for as long as no op falls due that there is room for. */
static int64_t wait_ns(const engine_t *engine, uint64_t index, uint64_t stop, bool halted) {
    if (!engine->due_ns || halted || index == stop || engine->queue->idle_count == 0) return WAIT_NS_MAX;
    const int64_t left_ns = until_due_ns(engine, index);
    return left_ns <= 0 || left_ns > WAIT_NS_MAX ? WAIT_NS_MAX : left_ns;
}

/* Nothing is in flight: run an op that waits for all before it, or wait for bytes. False when asked to stop. */
static bool advance_alone(engine_t *engine, uint64_t *index, times_t times, uint64_t first) {
    const op_t *op = &engine->ops[*index];
    if (is_data(op) && op->kind != KIND_MMAP_READ) {
        if (until_due_ns(engine, *index) > 0) wait_a_moment(engine, *index);
        else if (engine->feed) feed_wait(engine->feed);
        return true;
    }
    queue_t *queue = engine->queue;
    /* A table of open files would keep the file open beyond its close, and hide what closing it costs. */
    if (op->kind == KIND_CLOSE) queue->backend->set_file(queue, op->file, -1);
    if (!run_one(engine, *index, times, *index - first)) return false;
    if (op->kind == KIND_OPEN) queue->backend->set_file(queue, op->file, engine->files[op->file].fd);
    ++*index;
    return true;
}

uint64_t run_in_flight(engine_t *engine, uint64_t first, uint64_t stop, times_t times) {
    queue_t *queue = engine->queue;
    uint64_t index = first;
    queue->halted_ns = 0;
    if (queue->is_abandoned) return 0;
    for (;;) {
        const bool halted = is_halted(engine);
        if (!halted) index = push_some(engine, index, stop);
        if (in_flight_count(queue)) {
            const bool has_more = queue->pushed_count == SUBMITTED_TOGETHER && queue->idle_count && index < stop;
            queue->wait_ns = wait_ns(engine, index, stop, halted);
            exchange(engine, has_more ? 0 : 1, times, first);
            if (halted && in_flight_count(queue) && abandons(engine, times, first)) break;
        } else if (halted || index == stop || !advance_alone(engine, &index, times, first)) {
            break;
        }
    }
    return index - first;
}
