# What `native.pyx` uses of the C beside it: the declarations of engine.h, feed.h and queue.h that it needs, no more.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "_payload.h":
    ctypedef struct image_t:
        uint64_t storm, key
        int32_t round_index
        uint32_t rank

cdef extern from "engine.h":
    ctypedef struct op_t:
        pass
    ctypedef struct file_t:
        const char *name
        image_t image
        int fd
        uint8_t *mapped
    ctypedef enum io_mode_t:
        MODE_SYNC, MODE_LIBAIO, MODE_IO_URING, MODE_MMAP, MODE_NULL
    ctypedef struct times_t:
        int64_t *start_ns
        int64_t *end_ns
        int64_t *result
    ctypedef struct buffer_t:
        uint8_t *bytes
        uint64_t size_bytes
    ctypedef struct engine_t:
        const op_t *ops
        uint64_t op_count
        file_t *files
        uint32_t file_count
        int root_fd
        io_mode_t mode
        bint is_direct, stops_on_error
        uint32_t queue_depth
        feed_t *feed
        buffer_t plain
        void *queue
        int64_t *control
        int64_t deadline_ns
        const int64_t *due_ns
        int64_t lap_began_ns
        bint has_failed
        uint64_t direct_file_count
    void close_files(engine_t *engine)
    int buffer_take(buffer_t *buffer, uint64_t size_bytes)
    void buffer_give_back(buffer_t *buffer)
    void buffer_scramble(buffer_t *buffer)
    long sharpen_timers() nogil
    void restore_timers(long slack_ns) nogil
    uint64_t run_in_turn(engine_t *engine, uint64_t first, uint64_t stop, times_t times) nogil
    uint64_t run_in_flight(engine_t *engine, uint64_t first, uint64_t stop, times_t times) nogil
    int queue_take(engine_t *engine)
    int queue_bind(engine_t *engine) nogil
    void queue_give_back(engine_t *engine) nogil

cdef extern from "feed.h":
    ctypedef struct mismatch_t:
        uint32_t file
        uint64_t offset_bytes, differing_bytes
        uint8_t expected, found
        bint has_stamp
        uint8_t stamp[40]
    ctypedef struct feed_t:
        int64_t generate_wait_ns, verify_wait_ns
        uint64_t verified_bytes, mismatch_count
        mismatch_t mismatches[8]
    ctypedef struct feed_size_t:
        uint64_t batch_bytes, batch_count
    feed_size_t feed_size(const engine_t *engine)
    uint64_t room_bytes(const engine_t *engine, const op_t *op)
    int feed_take(feed_t *feed, const engine_t *engine, double verify_share)
    int feed_seek(feed_t *feed, uint64_t first, uint64_t lap_first, uint64_t lap_stop, bint is_ring) nogil
    void feed_halt(feed_t *feed) nogil
    void feed_give_back(feed_t *feed) nogil

cdef extern from "queue.h":
    int uring_probe()
    int aio_probe()
