/* decoder.h - converts token texts to text: a chain of steps over a list of strings. */
#ifndef COMMON_TOKENIZER_DECODER_H
#define COMMON_TOKENIZER_DECODER_H
#include "common/buf.h"
#include "common/json/json.h"
#include "common/tokenizer/regex.h"

enum decode_kind {
    DECODE_BYTES,    /* ByteLevel */
    DECODE_FALLBACK, /* ByteFallback: <0xE4> */
    DECODE_FUSE,
    DECODE_STRIP,
    DECODE_REPLACE,
    DECODE_METASPACE,
    DECODE_WORDPIECE,
    DECODE_SUFFIX, /* BPEDecoder */
};
struct decode_step {
    enum decode_kind kind;
    char *what, *text;        /* pattern, replacement; prefix; suffix */
    struct regex *regex;      /* DECODE_REPLACE */
    uint32_t ch, start, stop; /* DECODE_STRIP, DECODE_METASPACE */
    bool flag;                /* METASPACE: drop the first space; WORDPIECE: clean up */
};
struct decoder {
    struct decode_step *v;
    uint32_t n;
    bool present; /* without a decoder tokens are joined by spaces */
};
int tok_decoder_load(struct decoder *d, const cJSON *j, struct err *e);
void tok_decoder_free(struct decoder *d);

/* A list of concatenated strings. */
struct strings {
    struct buf text;
    struct buf end; /* end offsets, as size_t */
};
void strings_reset(struct strings *s);
static inline size_t strings_n(const struct strings *s) { return s->end.len / sizeof(size_t); }
/* the text appended since the last call becomes one string */
void strings_close(struct strings *s);

/* Working memory of a run: zero-initialise, one per caller. It is kept between runs, so that
 * streaming soon allocates nothing. */
struct decode_work {
    struct strings in, tmp;
    struct buf part; /* used by single steps */
    void *match;     /* match data of a regular expression */
};
void decode_work_free(struct decode_work *w);

/* Runs the chain over w->in, which it consumes, and appends the joined result to `out`. */
void decoder_run(const struct decoder *d, struct decode_work *w, struct buf *out);
#endif
