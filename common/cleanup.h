/* cleanup.h - scope guards. The attribute is the only compiler extension in plain C files, and is
 * used only through this header. */
#ifndef COMMON_CLEANUP_H
#define COMMON_CLEANUP_H
#include <stdlib.h>
#include <unistd.h>
#define CLEANUP(fn) __attribute__((cleanup(fn)))

static inline void cleanup_free(void *pp) { free(*(void **)pp); }
static inline void cleanup_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

/* Transfers ownership of a guarded pointer: `return STEAL(p);` */
#define STEAL(p) cleanup_steal(&(p))
static inline void *cleanup_steal(void *pp)
{
    void *v = *(void **)pp;
    *(void **)pp = NULL;
    return v;
}
#endif
