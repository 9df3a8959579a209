/* io_uring by raw system call: no library is needed on the machine under test.
 *
 * Memory order: the kernel reads an SQE after it sees the tail move, so the tail is stored with
 * release; a CQE is read after its tail was loaded with acquire; the head is given back with release,
 * because the kernel then writes the entry anew. x86 would forgive less; aarch64 does not.
 */
#define _GNU_SOURCE
#include "queue.h"
#include "uring_abi.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    BUFFERS_MAX = 1 << 14,   /* as many as a ring registers */
    FILES_MAX = 1 << 10,     /* more open files than RLIMIT_NOFILE usually allows need no table */
};
static const uint64_t REGISTERED_BYTES_MAX = 1 << 30; /* the kernel's limit for one buffer */

typedef struct {
    int fd;
    pid_t thread;    /* the only one that may submit; 0: any, -1: the first that runs */
    bool has_wait_timeout, has_buffers, has_files;
    uint8_t *sq_memory, *cq_memory;
    size_t sq_bytes, cq_bytes, sqes_bytes;
    uring_sqe_t *sqes;
    uring_cqe_t *cqes;
    uint32_t *sq_tail, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask, tail; /* tail: ours, not yet shown to the kernel */
    const uint8_t *buffers;
    uint64_t each_bytes;
} uring_t;

static int enter(int fd, uint32_t submit, uint32_t least, uint32_t flags, const void *argument, size_t size) {
    const long returned = syscall(__NR_io_uring_enter, fd, submit, least, flags, argument, size);
    return returned < 0 ? -errno : (int)returned;
}

static long control(const uring_t *ring, unsigned what, const void *argument, unsigned count) {
    return syscall(__NR_io_uring_register, ring->fd, what, argument, count);
}

/* The newest way that the kernel knows: completions are worked off when the one submitter asks for them, and
 * interrupt it at no other time (Linux 6.1); or only when it enters the kernel (5.19); or as they come. */
static int set_up(uint32_t entries, uring_params_t *params) {
    static const uint32_t ways[] = {
        URING_SETUP_SINGLE_ISSUER | URING_SETUP_DEFER_TASKRUN | URING_SETUP_R_DISABLED, URING_SETUP_COOP_TASKRUN, 0};
    long fd = -1;
    for (unsigned k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        *params = (uring_params_t){.flags = ways[k]};
        fd = syscall(__NR_io_uring_setup, entries, params);
        if (fd >= 0 || errno != EINVAL) break;
    }
    return fd < 0 ? -errno : (int)fd;
}

int uring_probe(void) {
    uring_params_t params;
    const int fd = set_up(1, &params);
    if (fd >= 0) close(fd);
    return fd < 0 ? -fd : 0;
}

static void *map(const uring_t *ring, size_t size, off_t offset) {
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, offset);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static int map_rings(uring_t *ring, const uring_params_t *params) {
    ring->sq_bytes = params->sq.array + params->sq_entries * sizeof(uint32_t);
    ring->cq_bytes = params->cq.cqes + params->cq_entries * sizeof(uring_cqe_t);
    ring->sqes_bytes = params->sq_entries * sizeof(uring_sqe_t);
    const bool is_one = params->features & URING_FEAT_SINGLE_MMAP;
    if (is_one && ring->cq_bytes > ring->sq_bytes) ring->sq_bytes = ring->cq_bytes;
    ring->sq_memory = map(ring, ring->sq_bytes, URING_OFFSET_SQ);
    ring->cq_memory = is_one ? ring->sq_memory : map(ring, ring->cq_bytes, URING_OFFSET_CQ);
    ring->sqes = map(ring, ring->sqes_bytes, URING_OFFSET_SQES);
    if (!ring->sq_memory || !ring->cq_memory || !ring->sqes) return -ENOMEM;
    ring->sq_tail = (uint32_t *)(ring->sq_memory + params->sq.tail);
    ring->sq_mask = *(uint32_t *)(ring->sq_memory + params->sq.mask);
    ring->cq_head = (uint32_t *)(ring->cq_memory + params->cq.head);
    ring->cq_tail = (uint32_t *)(ring->cq_memory + params->cq.tail);
    ring->cq_mask = *(uint32_t *)(ring->cq_memory + params->cq.mask);
    ring->cqes = (uring_cqe_t *)(ring->cq_memory + params->cq.cqes);
    ring->tail = *ring->sq_tail;
    uint32_t *array = (uint32_t *)(ring->sq_memory + params->sq.array);
    for (uint32_t k = 0; k < params->sq_entries; k++) array[k] = k; /* entries are used in ring order, for ever */
    return 0;
}

/* Pinned once, not for every op. A limit on locked memory forbids it to some: then the ops name plain memory. */
static void register_buffers(uring_t *ring, const engine_t *engine) {
    const buffer_t *memory = engine->feed ? &engine->feed->memory : &engine->plain;
    const uint64_t count = engine->feed ? engine->feed->batch_count : engine->queue_depth;
    if (memory->size_bytes == 0 || count > BUFFERS_MAX) return;
    ring->buffers = memory->bytes;
    ring->each_bytes = memory->size_bytes / count;
    if (ring->each_bytes > REGISTERED_BYTES_MAX) return;
    struct iovec *each = calloc(count, sizeof *each);
    if (!each) return;
    for (uint64_t k = 0; k < count; k++)
        each[k] = (struct iovec){memory->bytes + k * ring->each_bytes, ring->each_bytes};
    ring->has_buffers = control(ring, URING_REGISTER_BUFFERS, each, (unsigned)count) == 0;
    free(each);
}

/* A table with a place for every path (-1: not open): a file is looked up once, when it is opened. */
static void register_files(uring_t *ring, const engine_t *engine) {
    int32_t fds[FILES_MAX];
    if (engine->file_count > FILES_MAX) return;
    for (uint32_t k = 0; k < engine->file_count; k++) fds[k] = engine->files[k].fd;
    ring->has_files = control(ring, URING_REGISTER_FILES, fds, engine->file_count) == 0;
}

static int take(engine_t *engine) {
    uring_params_t params;
    uring_t *ring = engine->queue->kernel = calloc(1, sizeof *ring);
    if (!ring) return -ENOMEM;
    ring->fd = set_up(engine->queue_depth, &params);
    if (ring->fd < 0) return ring->fd;
    const int failure = map_rings(ring, &params);
    if (failure) return failure;
    ring->has_wait_timeout = params.features & URING_FEAT_EXT_ARG;
    ring->thread = params.flags & URING_SETUP_SINGLE_ISSUER ? -1 : 0;
    if (engine->is_direct) register_buffers(ring, engine); /* buffered ops copy, and pin nothing */
    register_files(ring, engine);
    return 0;
}

static void give_back(queue_t *queue) {
    uring_t *ring = queue->kernel;
    if (ring->sqes) munmap(ring->sqes, ring->sqes_bytes);
    if (ring->cq_memory && ring->cq_memory != ring->sq_memory) munmap(ring->cq_memory, ring->cq_bytes);
    if (ring->sq_memory) munmap(ring->sq_memory, ring->sq_bytes);
    if (ring->fd >= 0) close(ring->fd);
    free(ring);
    queue->kernel = NULL;
}

/* A ring with one submitter belongs to the thread that runs the program. When a later span is run by another
 * thread, the ring is made anew for it: nothing is in flight between spans. */
static int bind(engine_t *engine) {
    uring_t *ring = engine->queue->kernel;
    const pid_t here = (pid_t)syscall(SYS_gettid);
    if (ring->thread == 0 || ring->thread == here) return 0;
    if (ring->thread != -1) {
        give_back(engine->queue);
        const int failure = take(engine);
        if (failure) return failure;
        ring = engine->queue->kernel;
    }
    ring->thread = here;
    return control(ring, URING_REGISTER_ENABLE_RINGS, NULL, 0) < 0 ? -errno : 0;
}

static void push(queue_t *queue, request_t *request, const file_t *file) {
    uring_t *ring = queue->kernel;
    const op_t *op = request->op;
    const bool writes = is_write(op), is_vector = op->kind == KIND_WRITEV;
    uring_sqe_t *sqe = &ring->sqes[ring->tail++ & ring->sq_mask];
    *sqe = (uring_sqe_t){
        .opcode = is_vector ? URING_OP_WRITEV : writes ? URING_OP_WRITE : URING_OP_READ,
        .fd = file->fd,
        .offset_bytes = op->offset_bytes,
        .address = (uintptr_t)(is_vector ? (void *)request->parts : request->bytes),
        .length = is_vector ? request->part_count : transfer_bytes(op),
        .user_data = (uintptr_t)request,
    };
    if (ring->has_files && file->fd >= 0) {
        sqe->flags = URING_SQE_FIXED_FILE;
        sqe->fd = (int32_t)op->file;
    }
    if (ring->has_buffers && !is_vector) {
        sqe->opcode = writes ? URING_OP_WRITE_FIXED : URING_OP_READ_FIXED;
        sqe->buffer_index = (uint16_t)((uint64_t)(request->bytes - ring->buffers) / ring->each_bytes);
    }
}

static bool reap(queue_t *queue) {
    uring_t *ring = queue->kernel;
    uint32_t head = *ring->cq_head;
    const uint32_t tail = __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE);
    const bool is_any = head != tail;
    for (; head != tail; head++) {
        const uring_cqe_t *cqe = &ring->cqes[head & ring->cq_mask];
        complete(queue, (request_t *)(uintptr_t)cqe->user_data, cqe->result);
    }
    __atomic_store_n(ring->cq_head, head, __ATOMIC_RELEASE);
    return is_any;
}

/* Submit what was pushed and wait for a completion, in one system call where the kernel can. */
static void exchange(queue_t *queue, uint32_t least) {
    uring_t *ring = queue->kernel;
    struct { int64_t seconds, nanoseconds; } moment = {0, queue->wait_ns};
    const uring_wait_t wait = {.timeout = (uintptr_t)&moment};
    const uint32_t count = queue->pushed_count;
    int taken = 0;
    __atomic_store_n(ring->sq_tail, ring->tail, __ATOMIC_RELEASE);
    if (count == 0 && reap(queue)) return;
    if (least && ring->has_wait_timeout) {
        taken = enter(ring->fd, count, least, URING_ENTER_GETEVENTS | URING_ENTER_EXT_ARG, &wait, sizeof wait);
    } else {
        if (count) taken = enter(ring->fd, count, 0, 0, NULL, 0);
        struct pollfd readable = {ring->fd, POLLIN, 0};
        const struct timespec timeout = {0, queue->wait_ns};
        if (least && taken >= 0) ppoll(&readable, 1, &timeout, NULL);
    }
    /* A negative answer (a timeout, a signal, a busy ring) took nothing: what was pushed is offered again. */
    if (taken > 0) submitted(queue, (uint32_t)taken);
    reap(queue);
}

static void set_file(queue_t *queue, uint32_t file, int fd) {
    uring_t *ring = queue->kernel;
    const int32_t entry = fd;
    const uring_files_update_t update = {.offset = file, .fds = (uintptr_t)&entry};
    if (ring->has_files && control(ring, URING_REGISTER_FILES_UPDATE, &update, 1) < 0) ring->has_files = false;
}

const backend_t URING = {take, give_back, bind, push, exchange, set_file};
