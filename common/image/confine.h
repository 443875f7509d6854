/* confine.h - drops all privileges that decoding an image does not need.
 *
 * Sanitizers need more: in such builds the address space is not limited, standard error stays open,
 * and the filter only blocks network, programs and processes (confine_is_strict). */
#ifndef COMMON_IMAGE_CONFINE_H
#define COMMON_IMAGE_CONFINE_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

struct confinement {
    uint64_t memory_bytes; /* limit of address space in bytes, beyond existing mappings */
    uint32_t cpu_s;        /* limit of CPU seconds of the process */
    int parent;            /* pid of the parent, which may have exited already */
    int channel;           /* the only descriptor that may be read and written */
};

/* Call in a single-threaded process, before it reads untrusted data. Afterwards it can read and
 * write `channel`, map non-executable memory, and exit; any other system call kills it. It is
 * killed when the thread that started it ends. ERR_SYSTEM: the kernel refused; the process must
 * exit. */
int confine_process(const struct confinement *c, struct err *e);
extern const bool confine_is_strict;
#endif
