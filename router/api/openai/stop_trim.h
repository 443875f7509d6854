/* stop_trim.h - cuts an OpenAI answer before (or after) its stop sequence. Pure.
 *
 * The shard ends a generation when a stop sequence is complete, and its text includes it. OpenAI's
 * answers exclude it. So text is held back while it may be the beginning of a stop sequence, and
 * dropped if it was one. Both skip sequences that are complete before the answer may end. */
#ifndef ROUTER_API_OPENAI_STOP_TRIM_H
#define ROUTER_API_OPENAI_STOP_TRIM_H
#include "common/buf.h"
#include <stdbool.h>
#include <stdint.h>

struct stop_trim { /* zero-initialise, set stop and n */
    const char *const *stop;
    uint32_t n;
    bool keep; /* the sequence is returned; text after it is not */
    struct buf held;
    size_t early;      /* bytes of `held` in which no sequence counts as complete */
    const char *found; /* the matched sequence */
    bool matched;      /* a stop sequence was complete; later text is dropped */
};

/* Appends to `out` the text that is decided. `early`: a sequence that is complete within s [n] does
 * not end the answer (`min_tokens`); one that begins in it may. */
void stop_trim_push(struct stop_trim *t, const char *s, size_t n, bool early, struct buf *out);
/* End of the answer, by a stop sequence or another reason (the last allowed token may complete one
 * too). */
void stop_trim_end(struct stop_trim *t, struct buf *out);
void stop_trim_free(struct stop_trim *t);
#endif
