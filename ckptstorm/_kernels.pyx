# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The payload's kernels for Python: `payload.py` uses them where they were compiled; both make the same bytes."""

from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t

cdef extern from "_payload.h":
    ctypedef struct image_t:
        uint64_t storm, key
        int32_t round_index
        uint32_t rank
    ctypedef struct difference_t:
        uint64_t differing_bytes, first
        uint8_t expected, found
    void payload_fill(const image_t *image, uint8_t *out, uint64_t length_bytes, uint64_t offset_bytes) nogil
    difference_t payload_check(
        const image_t *image, const uint8_t *found, uint64_t length_bytes, uint64_t offset_bytes) nogil
    const char *payload_instructions()


cdef image_t _image(image):
    return image_t(storm=image.storm, key=image.key, round_index=image.round_index, rank=image.rank)


def fill(image, uint8_t[::1] out, uint64_t offset_bytes):
    """Write the image's bytes [offset, offset + len(out)) into `out`, without the GIL."""
    cdef image_t c_image = _image(image)
    if len(out):
        with nogil:
            payload_fill(&c_image, &out[0], out.shape[0], offset_bytes)


def check(image, const uint8_t[::1] found, uint64_t offset_bytes):
    """(differing bytes, where the first one is in `found`, what was expected there) of bytes read at `offset_bytes`."""
    cdef image_t c_image = _image(image)
    cdef difference_t difference = difference_t(0, 0, 0, 0)
    if len(found):
        with nogil:
            difference = payload_check(&c_image, &found[0], found.shape[0], offset_bytes)
    return difference.differing_bytes, difference.first, difference.expected


def instructions():
    """The instruction set that the kernels run with here: "avx512", "avx2" or "portable"."""
    return payload_instructions().decode()
