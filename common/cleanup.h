/* cleanup.h - scope guards. The attribute is the only compiler extension we
 * use in plain C files, and it is spelled in this header alone. */
#ifndef COMMON_CLEANUP_H
#define COMMON_CLEANUP_H
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define CLEANUP(fn) __attribute__((cleanup(fn)))

static inline void cleanup_free(void *pp) { free(*(void **)pp); }
static inline void cleanup_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
static inline void cleanup_file(FILE **fp)
{
    if (*fp)
        fclose(*fp);
}

/* Hand a guarded pointer to its new owner: `return STEAL(p);` */
#define STEAL(p) cleanup_steal(&(p))
static inline void *cleanup_steal(void *pp)
{
    void *v = *(void **)pp;
    *(void **)pp = NULL;
    return v;
}
#endif
