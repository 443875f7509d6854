/* confine.h - a process gives up what decoding a picture does not need.
 *
 * A sanitizer's runtime needs more: in such builds the address space is not limited, standard error
 * stays open, and the filter only refuses network, programs and processes (confine_is_strict). */
#ifndef COMMON_IMAGE_CONFINE_H
#define COMMON_IMAGE_CONFINE_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

struct confinement {
    uint64_t memory_bytes; /* of address space, beyond what is mapped already */
    uint32_t cpu_s;        /* of processor time, in the whole life of the process */
    int parent;            /* pid of the parent, which may have ended already */
    int channel;           /* the one descriptor that may be read and written */
};

/* For a process with one thread, before it reads what others sent. Afterwards it can read and write
 * `channel`, map memory that is not executable, and end; another system call kills it. It dies with
 * the thread that started it. ERR_SYSTEM: the kernel refused; the process must not go on. */
int confine_process(const struct confinement *c, struct err *e);
extern const bool confine_is_strict;
#endif
