/* step.h - normalizers and pre-tokenizers, compiled at load to a flat list of small steps. A step
 * either rewrites the characters of each span or splits each span. */
#ifndef COMMON_TOKENIZER_STEP_H
#define COMMON_TOKENIZER_STEP_H
#include "common/json/json.h"
#include "common/tokenizer/charsmap.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/text.h"

enum step_kind {
    /* rewriting steps */
    STEP_NFC,
    STEP_NFD,
    STEP_NFKC,
    STEP_NFKD,
    STEP_LOWER,
    STEP_STRIP,
    STEP_DROP_MARKS, /* M*: StripAccents */
    STEP_DROP_MN,    /* Mn: BertNormalizer's accents */
    STEP_CLEAN,      /* BertNormalizer: removes control characters, maps white space to ' ' */
    STEP_CHINESE,    /* BertNormalizer: spaces around ideographs */
    STEP_NMT,
    STEP_CHARSMAP, /* sentencepiece's compiled map */
    STEP_REPLACE,  /* `find` -> `text` */
    STEP_PREPEND,  /* prepends `text` to every non-empty span, depending on `when` */
    STEP_BYTES,    /* ByteLevel: maps each byte to one of 256 printable characters */
    /* splitting steps */
    STEP_SPLIT,
    STEP_FIXED, /* pieces of `count` characters */
};

/* What a step looks for: matches of `regex`, the string `what`, the character `ch`, a character of
 * a class (unicode.h), or runs of word characters and of others that are no white space. */
enum find_kind {
    FIND_REGEX,
    FIND_TEXT,
    FIND_CHAR,
    FIND_NUMERIC,
    FIND_WHITE,
    FIND_PUNCT,
    FIND_WORDS
};
/* What becomes of a match, as `behavior` of tokenizer.json: a piece of its own, nothing, a piece
 * with adjacent matches, the end of the piece before it, the beginning of the one after it. */
enum split_behaviour {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_CONTIGUOUS,
    SPLIT_PREVIOUS,
    SPLIT_NEXT
};
/* Before each span, before those that do not begin with `ch`, or before the first of the text. */
enum prepend_when { PREPEND_ALWAYS, PREPEND_UNLESS_THERE, PREPEND_FIRST };

/* One step; which fields are used depends on the kinds. `invert`: what lies between the matches
 * counts as matched. `left`, `right`: the ends that STEP_STRIP strips. */
struct step {
    enum step_kind kind;
    enum find_kind find;
    enum split_behaviour behaviour;
    enum prepend_when when;
    bool invert, left, right;
    uint32_t ch;    /* FIND_CHAR, PREPEND_UNLESS_THERE: the character */
    uint32_t count; /* STEP_FIXED */
    struct regex *regex;
    char *text, *what; /* replacement or prefix; FIND_TEXT: the text to find */
    size_t text_n, what_n;
    struct charsmap *map;
};
/* Steps in the order in which they run. Zero-initialise; immutable once loaded. */
struct steps {
    struct step *v;
    uint32_t n, cap;
};
void steps_free(struct steps *s); /* with the expressions, maps and texts of all steps */
/* Appends the steps of a "normalizer" / "pre_tokenizer" object; NULL adds none. ERR_VALIDATION
 * names a type or an option that is not supported. After an error `s` is to be freed. */
int steps_normalizer(struct steps *s, const cJSON *j, struct err *e);
int steps_pre_tokenizer(struct steps *s, const cJSON *j, struct err *e);

/* Working memory of one thread: two texts and two lists of spans, used alternately. */
struct step_work {
    struct text text[2];
    struct spans spans[2];
    unsigned t, s;    /* indices of the current ones */
    bool offsets;     /* the caller requested offsets */
    void *match;      /* regex_match_new() */
    struct buf chars; /* normal forms */
};
void step_work_free(struct step_work *w); /* the memory, not `w` itself */
static inline struct text *work_text(struct step_work *w) { return &w->text[w->t]; }
static inline struct spans *work_spans(struct step_work *w) { return &w->spans[w->s]; }

/* Runs the steps over all spans that are not tokens yet. The result is work_text() with
 * work_spans(). ERR_VALIDATION: a limit of an expression was exceeded. ERR_SYSTEM: out of memory.
 */
int steps_run(const struct steps *s, struct step_work *w, struct err *e);

/* Private to step*.c. Rewriting: appends the span's new characters to `r`; idle: true if the step
 * cannot change the span, which is then not copied. Splitting: appends the pieces to `out`. */
int step_rewrite(const struct step *st, struct step_work *w, struct rewrite *r, struct err *e);
bool step_rewrite_idle(const struct step *st, const struct text *t, const struct span *s);
int step_split(const struct step *st, struct step_work *w, const struct span *s, struct spans *out,
               struct err *e);
/* Finds the next match of the step in s[0..n) at or after *at: sets [*start, *end). */
struct finder {
    const struct step *st;
    const char *s;
    size_t n, at;
    struct regex_iter it;
};
struct finder finder(const struct step *st, const char *s, size_t n, void *match);
int finder_next(struct finder *f, size_t *start, size_t *end); /* as regex_next() */
#endif
