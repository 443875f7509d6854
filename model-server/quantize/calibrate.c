#include "model-server/quantize/calibrate.h"
#include "common/hash.h"
#include "common/json/json.h"
#include "common/tokenizer/tokenizer.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TEXT_MAX = 256 << 20 };

static const unsigned char shipped[] = {
#include "calibration.inc"
};

/* ---------------------------------------------------------------- the text */

int token_text_read(struct token_text *t, const char *model, const char *path, uint32_t context,
                    uint32_t most, struct err *e)
{
    size_t n = sizeof(shipped);
    struct tok_ids ids = {0};
    struct tok_scratch *scratch = NULL;
    *t = (struct token_text){.context = context};
    char *file = path ? file_read(path, TEXT_MAX, &n, e) : NULL;
    if (path && !file)
        return -1;
    struct tokenizer *tok = tokenizer_load(model, e);
    int rc = tok ? tokenizer_encode(tok, path ? file : (const char *)shipped, n, TOK_ADD_SPECIAL,
                                    &scratch, &ids, e)
                 : -1;
    const uint32_t least = HOLD_OUT * SEQUENCE_LEAST;
    if (rc == 0 && most && most < ids.n)
        ids.n = most;
    if (rc == 0 && ids.n < least)
        rc = err_set(e, ERR_VALIDATION, "%s: %u tokens are too short a text: at least %u",
                     path ? path : "the calibration text", ids.n, least);
    if (rc == 0 && !(t->ids = malloc(ids.n * sizeof(*t->ids))))
        rc = err_nomem(e);
    if (rc == 0) {
        memcpy(t->ids, ids.id, ids.n * sizeof(*t->ids));
        t->n = ids.n;
        if (t->n / context < HOLD_OUT) /* short texts: shorter sequences */
            t->context = t->n / HOLD_OUT;
    }
    tok_ids_free(&ids);
    tok_scratch_free(scratch);
    tokenizer_free(tok);
    free(file);
    return rc;
}

void token_text_free(struct token_text *t)
{
    free(t->ids);
    *t = (struct token_text){0};
}

bool token_text_sequence(const struct token_text *t, bool held_out, uint32_t i,
                         const uint32_t **ids, uint32_t *n)
{
    const uint64_t rest = HOLD_OUT - 1;
    const uint64_t k = held_out ? (uint64_t)i * HOLD_OUT + rest : i / rest * HOLD_OUT + i % rest;
    const uint64_t at = k * t->context;
    if (at + SEQUENCE_LEAST > t->n)
        return false;
    *ids = t->ids + at;
    *n = t->n - at < t->context ? (uint32_t)(t->n - at) : t->context;
    return true;
}

uint64_t token_text_hash(const struct token_text *t)
{
    return hash_bytes(t->context, t->ids, t->n * sizeof(*t->ids));
}

/* ---------------------------------------------------------------- its rows */

static int map_rows(struct calibration *c, int i, const struct out *o, bool there, struct err *e)
{
    c->path[i] = out_scratch(o, i ? "1" : "0");
    if (!c->path[i])
        return err_nomem(e);
    const int fd = open(c->path[i], O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    const off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    int rc = fd < 0 ? err_sys(e, "open %s", c->path[i]) : 0;
    if (rc == 0 && there && (size_t)size != c->bytes)
        rc = err_set(e, ERR_VALIDATION, "%s: it is not as it was left", c->path[i]);
    const int no_room = rc == 0 ? posix_fallocate(fd, 0, (off_t)c->bytes) : 0;
    if (no_room) {
        errno = no_room;
        rc = err_sys(e, "%s: %zu bytes", c->path[i], c->bytes);
    }
    void *map = rc ? MAP_FAILED : mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (rc == 0 && map == MAP_FAILED)
        rc = err_sys(e, "mmap %s", c->path[i]);
    if (rc == 0)
        c->x[i] = map;
    if (fd >= 0)
        close(fd);
    return rc;
}

static int embed(struct calibration *c, struct err *e)
{
    const uint32_t *ids;
    float *x = c->x[0];
    uint32_t n;
    for (uint32_t i = 0; token_text_sequence(c->text, false, i, &ids, &n); i++) {
        if (walk_embed(c->walk, ids, n, x, e))
            return -1;
        x += n * c->hidden;
    }
    return 0;
}

int calibration_open(struct calibration *c, const struct token_text *text, struct walk *walk,
                     const struct out *o, uint32_t next, struct err *e)
{
    const uint32_t *ids;
    uint32_t n;
    *c = (struct calibration){.text = text, .walk = walk, .hidden = walk_spec(walk)->hidden};
    for (uint32_t i = 0; token_text_sequence(text, false, i, &ids, &n); i++)
        c->rows += n;
    c->bytes = c->rows * c->hidden * sizeof(float);
    if (map_rows(c, 0, o, next > 0, e) || map_rows(c, 1, o, next > 0, e))
        return -1;
    return next ? 0 : embed(c, e);
}

void calibration_close(struct calibration *c)
{
    for (int i = 0; i < 2; i++) {
        if (c->x[i])
            munmap(c->x[i], c->bytes);
        free(c->path[i]);
    }
    *c = (struct calibration){0};
}

int calibration_run(struct calibration *c, uint32_t layer, struct err *e)
{
    const uint32_t *ids;
    const float *from = c->x[layer % 2];
    float *to = c->x[(layer + 1) % 2];
    uint32_t n;
    for (uint32_t i = 0; token_text_sequence(c->text, false, i, &ids, &n); i++) {
        memcpy(to, from, n * c->hidden * sizeof(float));
        if (walk_layer(c->walk, layer, to, n, e))
            return -1;
        from += n * c->hidden, to += n * c->hidden;
    }
    return 0;
}
