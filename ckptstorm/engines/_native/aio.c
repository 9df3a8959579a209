/* Linux native AIO by raw system call: what "libaio" means to fio and to databases.
 *
 * The kernel runs buffered ops within io_submit, one after the other; only O_DIRECT is asynchronous.
 */
#define _GNU_SOURCE
#include "queue.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    aio_context_t context;
    struct iocb *blocks;        /* one a request */
    struct iocb **order;        /* those pushed, for io_submit */
    struct io_event *events;
} aio_t;

int aio_probe(void) {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 1, &context) < 0) return errno;
    syscall(SYS_io_destroy, context);
    return 0;
}

static int take(engine_t *engine) {
    queue_t *queue = engine->queue;
    aio_t *aio = queue->kernel = calloc(1, sizeof *aio);
    if (!aio) return -ENOMEM;
    aio->blocks = calloc(queue->depth, sizeof *aio->blocks);
    aio->order = calloc(queue->depth, sizeof *aio->order);
    aio->events = calloc(queue->depth, sizeof *aio->events);
    if (!aio->blocks || !aio->order || !aio->events) return -ENOMEM;
    return syscall(SYS_io_setup, queue->depth, &aio->context) < 0 ? -errno : 0;
}

static void give_back(queue_t *queue) {
    aio_t *aio = queue->kernel;
    if (aio->context) syscall(SYS_io_destroy, aio->context);
    free(aio->blocks);
    free(aio->order);
    free(aio->events);
    free(aio);
    queue->kernel = NULL;
}

static void push(queue_t *queue, request_t *request, const file_t *file) {
    aio_t *aio = queue->kernel;
    const op_t *op = request->op;
    const bool is_vector = op->kind == KIND_WRITEV;
    struct iocb *block = &aio->blocks[request - queue->requests];
    *block = (struct iocb){
        .aio_data = (uintptr_t)request,
        .aio_lio_opcode = is_vector ? IOCB_CMD_PWRITEV : is_write(op) ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
        .aio_fildes = (uint32_t)file->fd,
        .aio_buf = (uintptr_t)(is_vector ? (void *)request->parts : request->bytes),
        .aio_nbytes = is_vector ? request->part_count : transfer_bytes(op),
        .aio_offset = (int64_t)op->offset_bytes,
    };
}

/* Submit what was pushed. io_submit stops at the first op that it refuses, and says why when that is the first
 * one offered: the refusal is that op's result, and the others go on. */
static void submit(queue_t *queue) {
    aio_t *aio = queue->kernel;
    while (queue->pushed_count) {
        for (uint32_t k = 0; k < queue->pushed_count; k++)
            aio->order[k] = &aio->blocks[queue->pushed[k] - queue->requests];
        const long taken = syscall(SYS_io_submit, aio->context, (long)queue->pushed_count, aio->order);
        if (taken < 0 && (errno == EAGAIN || errno == EINTR)) return; /* no room now: offered again next time */
        if (taken <= 0) complete(queue, queue->pushed[0], taken < 0 ? -errno : -EAGAIN);
        submitted(queue, taken > 0 ? (uint32_t)taken : 1);
    }
}

static void exchange(queue_t *queue, uint32_t least) {
    aio_t *aio = queue->kernel;
    struct timespec moment = {0, queue->wait_ns};
    submit(queue);
    const long room = (long)(queue->depth - queue->completed_count);
    if (!least || room == 0) return;
    if (queue->completed_count) moment.tv_nsec = 0; /* a refusal is news enough */
    const long count = syscall(SYS_io_getevents, aio->context, 1L, room, aio->events, &moment);
    for (long k = 0; k < count; k++)
        complete(queue, (request_t *)(uintptr_t)aio->events[k].data, aio->events[k].res);
}

static int bind(engine_t *engine) {
    (void)engine; /* any thread may submit */
    return 0;
}

static void set_file(queue_t *queue, uint32_t file, int fd) {
    (void)queue, (void)file, (void)fd; /* there is no table of files */
}

const backend_t AIO = {take, give_back, bind, push, exchange, set_file};
