/* MB/s of encoding and decoding, and milliseconds of loading, in time of one core.
 *
 *   tokenizer [tokenizer dir [text file ...]]
 *
 * Without texts it makes three itself: English-like, code-like and Chinese-like, 2 MB each, from a
 * fixed seed. Words follow Zipf's law over a vocabulary of 20,000, a good part of them real, so
 * that caches are neither useless nor perfect. The tokenizer defaults to TEST_DATA's llama3. The
 * last line of a text is "text <name> <bytes> <tokens> <encode MB/s> <with offsets MB/s> <decode
 * MB/s>". */
#include "common/tokenizer/tokenizer.h"
#include "common/json/json.h"
#include "common/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXT_BYTES = 2 << 20, WORDS = 20000, MAX_FILE = 1 << 30 };

static uint64_t rng_state = 42;

static uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((rng_state >> 33) % n);
}

/* Rank r with probability about 1/r: 2^u for a uniform u. */
static uint32_t zipf(uint32_t n)
{
    uint32_t bits = 32 - (uint32_t)__builtin_clz(n);
    uint32_t top = 1u << rnd(bits), r = top + rnd(top);
    return r <= n ? r - 1 : rnd(n);
}

static const char *const common_words[] = {
    "the",      "of",     "and",    "to",    "in",      "a",      "is",     "that",  "for",
    "it",       "as",     "was",    "with",  "be",      "by",     "on",     "not",   "he",
    "his",      "but",    "at",     "are",   "this",    "have",   "from",   "or",    "had",
    "an",       "they",   "which",  "one",   "you",     "were",   "all",    "her",   "she",
    "there",    "would",  "their",  "we",    "him",     "been",   "has",    "when",  "who",
    "will",     "no",     "more",   "if",    "out",     "time",   "people", "about", "water",
    "language", "number", "system", "could", "between", "through"};
static const char *const syllables[] = {"an", "ter", "re",   "con", "ing",  "ment", "ble", "pro",
                                        "st", "er",  "tion", "ly",  "de",   "in",   "al",  "ous",
                                        "ex", "com", "per",  "un",  "able", "ness", "ter", "ity"};

static void word(uint32_t rank, struct buf *b)
{
    if (rank < sizeof(common_words) / sizeof(common_words[0])) {
        buf_str(b, common_words[rank]);
        return;
    }
    for (uint32_t x = rank, i = 0; i < 2 + rank % 3; i++, x = x * 2654435761u >> 3)
        buf_str(b, syllables[x % (sizeof(syllables) / sizeof(syllables[0]))]);
}

static void english(struct buf *b)
{
    while (b->len < TEXT_BYTES) {
        uint32_t n = 5 + rnd(20);
        for (uint32_t i = 0; i < n; i++) {
            size_t at = b->len;
            word(zipf(WORDS), b);
            if (i == 0)
                b->p[at] = (char)(b->p[at] & ~32);
            if (i + 1 < n)
                buf_str(b, rnd(12) ? " " : rnd(4) ? ", " : "'s ");
        }
        buf_str(b, rnd(6) ? ". " : rnd(3) ? ".\n\n" : "? ");
        if (!rnd(30))
            buf_fmt(b, "In %u, %u.%u%% of ", 1900 + rnd(125), rnd(100), rnd(10));
    }
}

static void code(struct buf *b)
{
    static const char *const lines[] = {"if (",        "for (int ", "return ", "struct ",
                                        "static int ", "while (",   "// ",     "const char *"};
    for (uint32_t depth = 1; b->len < TEXT_BYTES; depth = 1 + (depth + rnd(3)) % 4) {
        for (uint32_t i = 0; i < depth; i++)
            buf_str(b, "    ");
        buf_str(b, lines[rnd(8)]);
        word(zipf(WORDS), b);
        buf_str(b, rnd(2) ? "->" : "_");
        word(zipf(WORDS), b);
        buf_fmt(b, rnd(2) ? " = %u;" : "[i + %u] == NULL) {", rnd(256));
        buf_str(b, rnd(5) ? "\n" : "\n\n");
    }
}

static void chinese(struct buf *b)
{
    char u[4];
    while (b->len < TEXT_BYTES) {
        uint32_t n = 6 + rnd(25);
        for (uint32_t i = 0; i < n; i++)
            buf_add(b, u, utf8_encode(0x4E00 + zipf(5000) * 4, u));
        buf_str(b, rnd(3) ? "，" : rnd(5) ? "。" : "。\n");
    }
}

struct bench {
    const struct tokenizer *t;
    struct tok_scratch *scratch;
    struct tok_ids ids;
};

/* Time of this thread on the processor: what else runs here does not count. */
static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Best of a few runs: what the machine can do when left alone. */
static double encode_speed(struct bench *x, const char *s, size_t n, unsigned flags)
{
    double best = 0;
    int64_t begin = cpu_ns();
    for (int i = 0; i < 20 && (i < 2 || cpu_ns() - begin < 600000000); i++) {
        struct err e = ERR_INIT;
        int64_t t0 = cpu_ns();
        if (tokenizer_encode(x->t, s, n, flags, &x->scratch, &x->ids, &e) != 0) {
            fprintf(stderr, "%s\n", e.msg);
            exit(1);
        }
        double speed = (double)n * 1e3 / (double)(cpu_ns() - t0);
        if (speed > best)
            best = speed;
    }
    return best;
}

static void run(struct bench *x, const char *name, const char *s, size_t n)
{
    struct buf out = BUF_INIT;
    struct detok d;
    double plain = encode_speed(x, s, n, 0), with = encode_speed(x, s, n, TOK_OFFSETS);
    int64_t t0 = cpu_ns();
    tokenizer_decode(x->t, x->ids.id, x->ids.n, false, &out);
    double decode = (double)out.len * 1e3 / (double)(cpu_ns() - t0);
    buf_reset(&out);
    if (detok_init(&d, x->t, NULL, 0, true) != 0)
        exit(1);
    t0 = cpu_ns();
    uint32_t count = x->ids.n < 100000 ? x->ids.n : 100000;
    for (uint32_t i = 0; i < count; i++)
        detok_push(&d, x->ids.id[i], &out);
    double stream = (double)(cpu_ns() - t0) / count;
    detok_free(&d);
    printf("  %-10s %9zu bytes %8u tokens  encode %6.1f MB/s  with offsets %6.1f  decode %6.1f  "
           "stream %4.0f ns/token\n",
           name, n, x->ids.n, plain, with, decode, stream);
    buf_free(&out);
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    char dir[4096];
    const char *data = getenv("TEST_DATA");
    snprintf(dir, sizeof dir, "%s/tokenizers/llama3", data && *data ? data : TEST_DATA);
    int64_t t0 = cpu_ns();
    struct tokenizer *t = tokenizer_load(argc > 1 ? argv[1] : dir, &e);
    if (!t) {
        printf("skipped: 1 cases (%s)\n", e.msg);
        return argc > 1;
    }
    printf("%s: loaded in %.0f ms\n", argc > 1 ? argv[1] : dir, (double)(cpu_ns() - t0) / 1e6);
    struct bench x = {.t = t};
    void (*const made[])(struct buf *) = {english, code, chinese};
    const char *const names[] = {"english", "code", "chinese"};
    for (int i = 0; argc <= 2 && i < 3; i++) {
        struct buf b = BUF_INIT;
        made[i](&b);
        run(&x, names[i], b.p, b.len);
        buf_free(&b);
    }
    for (int i = 2; i < argc; i++) {
        size_t n;
        char *s = file_read(argv[i], MAX_FILE, &n, &e);
        if (!s) {
            fprintf(stderr, "%s\n", e.msg);
            return 1;
        }
        const char *base = strrchr(argv[i], '/');
        run(&x, base ? base + 1 : argv[i], s, n);
        free(s);
    }
    tok_ids_free(&x.ids);
    tok_scratch_free(x.scratch);
    tokenizer_free(t);
    return 0;
}
