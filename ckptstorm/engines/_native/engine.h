/* One program, its open files and its buffers: what every mode of the native engine shares.
 *
 * Everything here runs without the GIL and without allocating: memory is taken when a program is
 * prepared and given back when it is finished.
 */
#ifndef CKPTSTORM_ENGINE_H
#define CKPTSTORM_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "_payload.h"

/* `program.Kind`; the numbers are part of the format. */
enum {
    KIND_MKDIR = 1, KIND_OPEN, KIND_WRITE, KIND_WRITEV, KIND_READ, KIND_MMAP_READ, KIND_MSYNC, KIND_FSYNC,
    KIND_FDATASYNC, KIND_SYNCFS, KIND_FSYNC_DIR, KIND_CLOSE, KIND_RENAME, KIND_STAT, KIND_FSTAT, KIND_STATFS,
    KIND_READDIR, KIND_UNLINK, KIND_RMDIR, KIND_UTIME, KIND_CHMOD, KIND_TRUNCATE, KIND_FALLOCATE, KIND_FADVISE,
    KIND_LOCK, KIND_UNLOCK, KIND_LINK, KIND_SETXATTR, KIND_COPY,
};

/* `program.OP_DTYPE`. */
typedef struct {
    uint8_t kind, flags;
    uint16_t expect;
    uint32_t file;
    uint64_t offset_bytes, length_bytes;
} op_t;
_Static_assert(sizeof(op_t) == 24, "program.OP_DTYPE");

typedef struct {
    const char *name; /* relative to the storm's root */
    image_t image;
    int fd;           /* -1: not open */
    uint8_t *mapped;  /* the whole file, for reads through a mapping; NULL: not mapped */
    uint64_t mapped_bytes;
} file_t;

typedef enum { MODE_SYNC, MODE_LIBAIO, MODE_IO_URING, MODE_MMAP, MODE_NULL } io_mode_t;

/* Slots of `sinks.Sink.control`. */
enum { CONTROL_OPS_DONE, CONTROL_BYTES_MOVED, CONTROL_STOP };

/* Where the times of a chunk of ops go, one element an op. */
typedef struct {
    int64_t *start_ns, *end_ns, *result;
} times_t;

/* Anonymous memory: page-aligned for O_DIRECT, of huge pages where the machine has them, touched. */
typedef struct {
    uint8_t *bytes;
    uint64_t size_bytes;
} buffer_t;

struct feed;
struct queue;

typedef struct {
    /* What was asked; fixed while the program lives. */
    const op_t *ops;
    uint64_t op_count;
    file_t *files;
    uint32_t file_count;
    int root_fd;
    io_mode_t mode;
    bool is_direct, stops_on_error;
    uint32_t queue_depth;

    /* What data ops use: a feed of payload, or (no payload) the same bytes again and again. */
    struct feed *feed;
    buffer_t plain;
    struct queue *queue;

    /* One run. */
    int64_t *control;
    int64_t deadline_ns; /* no op begins after it; INT64_MAX: none */
    /* Open loop: op k of a lap is due at lap_began_ns + due_ns[k], however late the ops before it were; NULL: at once. */
    const int64_t *due_ns;
    int64_t lap_began_ns;
    bool has_failed;     /* an op failed and that ends the program */

    /* What is left to tell. */
    uint64_t direct_file_count;
} engine_t;

static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* by vDSO: no system call */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline bool is_write(const op_t *op) { return op->kind == KIND_WRITE || op->kind == KIND_WRITEV; }
static inline bool is_read(const op_t *op) { return op->kind == KIND_READ || op->kind == KIND_MMAP_READ; }
static inline bool is_data(const op_t *op) { return is_write(op) || is_read(op); }

static inline bool is_stop_asked(const engine_t *engine) {
    return __atomic_load_n(&engine->control[CONTROL_STOP], __ATOMIC_RELAXED) != 0;
}

/* Count an op that is over, where the main thread sees it; this thread is the only writer of the two slots. */
static inline void count_op(engine_t *engine, const op_t *op, int64_t result) {
    int64_t *done = &engine->control[CONTROL_OPS_DONE], *moved = &engine->control[CONTROL_BYTES_MOVED];
    __atomic_store_n(done, *done + 1, __ATOMIC_RELAXED);
    if (result > 0) __atomic_store_n(moved, *moved + result, __ATOMIC_RELAXED);
    if (result < 0 && result != -(int64_t)op->expect && engine->stops_on_error) engine->has_failed = true;
}

/* calls.c: every op that is one system call. */
int64_t call(engine_t *engine, const op_t *op, uint8_t *bytes);
void settle(engine_t *engine, const op_t *op, int64_t *result);
void close_files(engine_t *engine);

/* mapped.c: the ops that go through a mapping; results are bytes or minus the errno. */
int64_t mapped_write(int fd, const uint8_t *bytes, uint64_t length_bytes, uint64_t offset_bytes);
int64_t mapped_read(file_t *file, uint8_t *bytes, uint64_t length_bytes, uint64_t offset_bytes);
int64_t mapped_sync(int fd, uint64_t length_bytes, uint64_t offset_bytes);
void unmap(file_t *file);

/* due.c: the schedule of an open-loop program. */
int64_t until_due_ns(const engine_t *engine, uint64_t index);
/* Sleep until op `index` is due; false when the sink asked to stop, or the deadline comes first. */
bool wait_until_due(const engine_t *engine, uint64_t index);
/* Sleep until it is due, but no longer than a moment. */
void wait_a_moment(const engine_t *engine, uint64_t index);
/* Timers of this thread fire when they are set for, not up to 50 us later; returns what to give back at the end. */
long sharpen_timers(void);
void restore_timers(long slack_ns);

/* buffers.c */
int buffer_take(buffer_t *buffer, uint64_t size_bytes);
void buffer_give_back(buffer_t *buffer);
void buffer_scramble(buffer_t *buffer);

/* sync.c: run the ops [first, stop); return how many were run. `times` begins at `first`. */
uint64_t run_in_turn(engine_t *engine, uint64_t first, uint64_t stop, times_t times);
bool run_one(engine_t *engine, uint64_t index, times_t times, uint64_t at);

/* queue.c: the same with up to `queue_depth` data ops in flight. */
int queue_take(engine_t *engine);
/* This thread runs what comes next. */
int queue_bind(engine_t *engine);
void queue_give_back(engine_t *engine);
uint64_t run_in_flight(engine_t *engine, uint64_t first, uint64_t stop, times_t times);

#endif
