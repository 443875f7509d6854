/* stop_trim.h - end what OpenAI clients read before (or behind) a stop sequence. Pure.
 *
 * The shard ends a generation where a stop sequence is complete, and its text includes it. OpenAI's
 * answer does not: text is held back while it may be the beginning of a stop sequence, and dropped
 * when it was one. */
#ifndef ROUTER_API_OPENAI_STOP_TRIM_H
#define ROUTER_API_OPENAI_STOP_TRIM_H
#include "common/buf.h"
#include <stdbool.h>
#include <stdint.h>

struct stop_trim { /* zero-initialise, set stop and n */
    const char *const *stop;
    uint32_t n;
    bool keep; /* the sequence is told, what follows it is not */
    struct buf held;
    const char *found; /* the sequence that was seen */
    bool matched;      /* a whole stop sequence was seen, and what follows it is dropped */
};

/* Append to `out` what can be told already. */
void stop_trim_push(struct stop_trim *t, const char *s, size_t n, struct buf *out);
/* The end, by a stop sequence or for another reason (the last token allowed may complete one too).
 */
void stop_trim_end(struct stop_trim *t, struct buf *out);
void stop_trim_free(struct stop_trim *t);
#endif
