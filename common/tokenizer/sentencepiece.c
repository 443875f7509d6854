#include "common/tokenizer/sentencepiece.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

enum { PIECES_MAX = 1 << 22 };
enum wire { VARINT = 0, EIGHT = 1, BYTES = 2, FOUR = 5 };

/* One message: a run of fields. */
struct message {
    const uint8_t *p, *end;
};
struct field {
    uint32_t number;
    enum wire wire;
    uint64_t v;        /* of VARINT; the bits of FOUR and EIGHT */
    struct message in; /* of BYTES */
};

static bool varint(struct message *m, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 64 && m->p < m->end; shift += 7) {
        const uint8_t b = *m->p++;
        *v |= (uint64_t)(b & 127) << shift;
        if (b < 128)
            return true;
    }
    return false;
}

static bool fixed(struct message *m, size_t n, uint64_t *v)
{
    *v = 0;
    if ((size_t)(m->end - m->p) < n)
        return false;
    for (size_t i = 0; i < n; i++)
        *v |= (uint64_t)*m->p++ << 8 * i;
    return true;
}

/* 1: the next field; 0: there is none; -1: the message is cut off. */
static int next(struct message *m, struct field *f)
{
    uint64_t key, n;
    if (m->p == m->end)
        return 0;
    if (!varint(m, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return -1;
    *f = (struct field){.number = (uint32_t)(key >> 3), .wire = (enum wire)(key & 7)};
    switch (f->wire) {
    case VARINT:
        return varint(m, &f->v) ? 1 : -1;
    case EIGHT:
        return fixed(m, 8, &f->v) ? 1 : -1;
    case FOUR:
        return fixed(m, 4, &f->v) ? 1 : -1;
    case BYTES:
        if (!varint(m, &n) || n > (uint64_t)(m->end - m->p))
            return -1;
        f->in = (struct message){m->p, m->p + n};
        m->p += n;
        return 1;
    }
    return -1;
}

static int broken(struct err *e) { return err_set(e, ERR_VALIDATION, "no SentencePiece model"); }

static int read_piece(struct spm *s, struct message m, struct err *e)
{
    struct spm_piece *x = &s->piece[s->n];
    struct field f;
    int rc;
    *x = (struct spm_piece){.p = "", .kind = SPM_NORMAL};
    while ((rc = next(&m, &f)) > 0) {
        if (f.number == 1 && f.wire == BYTES)
            x->p = (const char *)f.in.p, x->n = (size_t)(f.in.end - f.in.p);
        else if (f.number == 2 && f.wire == FOUR) {
            const uint32_t bits = (uint32_t)f.v;
            memcpy(&x->score, &bits, sizeof(bits));
        } else if (f.number == 3 && f.wire == VARINT && f.v >= SPM_NORMAL && f.v <= SPM_BYTE)
            x->kind = (enum spm_kind)f.v;
    }
    if (rc)
        return broken(e);
    if (!utf8_valid(x->p, x->n))
        return err_set(e, ERR_VALIDATION, "piece %u is not UTF-8", s->n);
    s->n++;
    return 0;
}

static int read_trainer(struct spm *s, struct message m, struct err *e)
{
    struct field f;
    int rc;
    while ((rc = next(&m, &f)) > 0) {
        int64_t *id = f.number == 40   ? &s->unk
                      : f.number == 41 ? &s->bos
                      : f.number == 42 ? &s->eos
                      : f.number == 43 ? &s->pad
                                       : NULL;
        if (f.wire != VARINT)
            continue;
        if (id)
            *id = (int32_t)f.v;
        else if (f.number == 35)
            s->bytes = f.v != 0;
        else if (f.number == 3 && f.v != 1 && f.v != 2)
            return err_set(e, ERR_VALIDATION, "a SentencePiece model of words or characters");
        else if (f.number == 3)
            s->bpe = f.v == 2;
        else if (f.number == 24 && f.v)
            return err_set(e, ERR_VALIDATION, "pieces that end in blanks are not supported");
    }
    return rc ? broken(e) : 0;
}

static int read_normalizer(struct spm *s, struct message m, struct err *e)
{
    struct field f;
    int rc;
    while ((rc = next(&m, &f)) > 0) {
        if (f.number == 2 && f.wire == BYTES)
            s->charsmap = (const char *)f.in.p, s->n_charsmap = (size_t)(f.in.end - f.in.p);
        else if (f.number == 3 && f.wire == VARINT)
            s->prefix = f.v != 0;
        else if (f.number == 4 && f.wire == VARINT)
            s->squeeze = f.v != 0;
        else if (f.number == 5 && f.wire == VARINT && !f.v)
            return err_set(e, ERR_VALIDATION, "blanks that stay blanks are not supported");
    }
    return rc ? broken(e) : 0;
}

static int read_all(struct spm *s, struct message m, struct err *e)
{
    uint32_t cap = 0;
    struct field f;
    int rc;
    while ((rc = next(&m, &f)) > 0) {
        if (f.wire != BYTES)
            continue;
        if (f.number == 1 && s->n == cap) {
            cap = cap ? 2 * cap : 1024;
            struct spm_piece *more =
                cap <= PIECES_MAX ? realloc(s->piece, cap * sizeof(*more)) : NULL;
            if (!more)
                return err_nomem(e);
            s->piece = more;
        }
        if ((f.number == 1 && read_piece(s, f.in, e)) ||
            (f.number == 2 && read_trainer(s, f.in, e)) ||
            (f.number == 3 && read_normalizer(s, f.in, e)))
            return -1;
    }
    return rc || !s->n ? broken(e) : 0;
}

int spm_open(struct spm *s, const void *bytes, size_t n, struct err *e)
{
    const struct message all = {bytes, (const uint8_t *)bytes + n};
    /* The defaults of the format. */
    *s = (struct spm){.unk = 0, .bos = 1, .eos = 2, .pad = -1, .prefix = true, .squeeze = true};
    if (read_all(s, all, e)) {
        spm_close(s);
        return -1;
    }
    int64_t *const ids[] = {&s->unk, &s->bos, &s->eos, &s->pad};
    for (int i = 0; i < 4; i++)
        if (*ids[i] >= s->n)
            *ids[i] = -1;
    return 0;
}

void spm_close(struct spm *s)
{
    free(s->piece);
    *s = (struct spm){0};
}
