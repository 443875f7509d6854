/* gguf_write.h - a GGUF file under construction, for tests, as llama.cpp's converters write
 * it. */
#ifndef TESTS_GGUF_WRITE_H
#define TESTS_GGUF_WRITE_H
#include "common/buf.h"
#include "common/gguf/gguf.h"
#include <stdio.h>
#include <string.h>

enum { GGUF_WRITE_ALIGN = 32 };
struct gguf_write {
    struct buf values, tensors, data;
    uint64_t n_values, n_tensors;
};

static inline void gw_u32(struct buf *b, uint32_t v) { buf_add(b, &v, sizeof(v)); }
static inline void gw_u64(struct buf *b, uint64_t v) { buf_add(b, &v, sizeof(v)); }
static inline void gw_text(struct buf *b, const char *s, size_t n)
{
    gw_u64(b, n);
    buf_add(b, s, n);
}

static inline void gw_key(struct gguf_write *w, const char *key, enum gguf_type type)
{
    gw_text(&w->values, key, strlen(key));
    gw_u32(&w->values, (uint32_t)type);
    w->n_values++;
}
static inline void gw_put_u32(struct gguf_write *w, const char *key, uint32_t v)
{
    gw_key(w, key, GGUF_T_U32);
    gw_u32(&w->values, v);
}
static inline void gw_put_f32(struct gguf_write *w, const char *key, float v)
{
    gw_key(w, key, GGUF_T_F32);
    buf_add(&w->values, &v, sizeof(v));
}
static inline void gw_put_bool(struct gguf_write *w, const char *key, bool v)
{
    gw_key(w, key, GGUF_T_BOOL);
    buf_ch(&w->values, (char)v);
}
static inline void gw_put_str(struct gguf_write *w, const char *key, const char *v)
{
    gw_key(w, key, GGUF_T_STRING);
    gw_text(&w->values, v, strlen(v));
}
/* The elements follow: gw_text() or raw bytes into w->values. */
static inline void gw_put_list(struct gguf_write *w, const char *key, enum gguf_type of, uint64_t n)
{
    gw_key(w, key, GGUF_T_ARRAY);
    gw_u32(&w->values, (uint32_t)of);
    gw_u64(&w->values, n);
}

/* dims as GGUF has them, neighbours first. */
static inline void gw_tensor(struct gguf_write *w, const char *name, enum gguf_packing p,
                             uint32_t n_dims, const uint64_t *dims, const void *data, size_t n)
{
    while (w->data.len % GGUF_WRITE_ALIGN)
        buf_ch(&w->data, 0);
    gw_text(&w->tensors, name, strlen(name));
    gw_u32(&w->tensors, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        gw_u64(&w->tensors, dims[i]);
    gw_u32(&w->tensors, gguf_packings[p].number);
    gw_u64(&w->tensors, w->data.len);
    buf_add(&w->data, data, n);
    w->n_tensors++;
}

/* Appends the whole file to `out`; `w` is empty afterwards. */
static inline void gw_finish(struct gguf_write *w, struct buf *out)
{
    buf_str(out, "GGUF");
    gw_u32(out, 3);
    gw_u64(out, w->n_tensors);
    gw_u64(out, w->n_values);
    buf_add(out, w->values.p, w->values.len);
    buf_add(out, w->tensors.p, w->tensors.len);
    while (out->len % GGUF_WRITE_ALIGN)
        buf_ch(out, 0);
    buf_add(out, w->data.p, w->data.len);
    buf_free(&w->values), buf_free(&w->tensors), buf_free(&w->data);
    *w = (struct gguf_write){0};
}

static inline int gw_save(struct gguf_write *w, const char *path)
{
    struct buf out = BUF_INIT;
    gw_finish(w, &out);
    FILE *f = out.oom ? NULL : fopen(path, "wb");
    int rc = f && fwrite(out.p, out.len, 1, f) == 1 ? 0 : -1;
    if (f && fclose(f))
        rc = -1;
    buf_free(&out);
    return rc;
}
#endif
