/* What of the kernel's io_uring interface is used here (its numbers never change).
 *
 * Written out, so that the engine can be built where the kernel's headers are older than the
 * kernel that it will run on.
 */
#ifndef CKPTSTORM_URING_ABI_H
#define CKPTSTORM_URING_ABI_H

#include <stdint.h>

#ifndef __NR_io_uring_setup /* the same on every architecture but alpha */
#define __NR_io_uring_setup 425
#define __NR_io_uring_enter 426
#define __NR_io_uring_register 427
#endif

enum {
    URING_OP_READV = 1, URING_OP_WRITEV = 2, URING_OP_READ_FIXED = 4, URING_OP_WRITE_FIXED = 5,
    URING_OP_READ = 22, URING_OP_WRITE = 23,
    URING_SQE_FIXED_FILE = 1,
    URING_ENTER_GETEVENTS = 1, URING_ENTER_EXT_ARG = 8,
    URING_SETUP_R_DISABLED = 1 << 6, URING_SETUP_COOP_TASKRUN = 1 << 8,
    URING_SETUP_SINGLE_ISSUER = 1 << 12, URING_SETUP_DEFER_TASKRUN = 1 << 13,
    URING_FEAT_SINGLE_MMAP = 1 << 0, URING_FEAT_EXT_ARG = 1 << 8,
    URING_REGISTER_BUFFERS = 0, URING_REGISTER_FILES = 2, URING_REGISTER_FILES_UPDATE = 6,
    URING_REGISTER_ENABLE_RINGS = 12,
    URING_OFFSET_SQ = 0, URING_OFFSET_CQ = 0x8000000, URING_OFFSET_SQES = 0x10000000,
};

typedef struct {
    uint8_t opcode, flags;
    uint16_t priority;
    int32_t fd;
    uint64_t offset_bytes, address;
    uint32_t length, rw_flags;
    uint64_t user_data;
    uint16_t buffer_index, personality;
    uint32_t splice_fd;
    uint64_t address3, padding;
} uring_sqe_t;
_Static_assert(sizeof(uring_sqe_t) == 64, "struct io_uring_sqe");

typedef struct {
    uint64_t user_data;
    int32_t result;
    uint32_t flags;
} uring_cqe_t;
_Static_assert(sizeof(uring_cqe_t) == 16, "struct io_uring_cqe");

typedef struct {
    uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd, reserved[3];
    struct { uint32_t head, tail, mask, entries, flags, dropped, array, reserved; uint64_t user; } sq;
    struct { uint32_t head, tail, mask, entries, overflow, cqes, flags, reserved; uint64_t user; } cq;
} uring_params_t;
_Static_assert(sizeof(uring_params_t) == 120, "struct io_uring_params");

typedef struct {
    uint64_t signal_mask;
    uint32_t signal_mask_size, padding;
    uint64_t timeout; /* address of a struct timespec of two 64-bit numbers */
} uring_wait_t;
_Static_assert(sizeof(uring_wait_t) == 24, "struct io_uring_getevents_arg");

typedef struct {
    uint32_t offset, reserved;
    uint64_t fds; /* address of int32_t[] */
} uring_files_update_t;
_Static_assert(sizeof(uring_files_update_t) == 16, "struct io_uring_files_update");

#endif
