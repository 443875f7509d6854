#include "model-server/encoder/conv_spec.h"
#include "model-server/encoder/conv.h"
#include <string.h>

void conv_add(struct conv_spec *s, struct conv_step c)
{
    if (s->n < CONV_MAX_STEPS)
        s->step[s->n] = c;
    s->n++;
}

struct conv_step conv_product(uint8_t from, uint8_t to, uint32_t out, uint8_t weight)
{
    return (struct conv_step){.kind = CONV_DENSE,
                              .from = from,
                              .to = to,
                              .size = 1,
                              .stride = 1,
                              .act = ACT_N,
                              .weight = weight,
                              .out = out};
}

struct conv_step conv_linear(uint8_t from, uint8_t to, uint32_t out, uint8_t weight)
{
    struct conv_step c = conv_product(from, to, out, weight);
    c.bias = true;
    return c;
}

struct conv_step conv_attend(uint8_t queries, uint8_t keys, uint8_t to, uint32_t heads,
                             uint32_t dim)
{
    return (struct conv_step){.kind = CONV_ATTEND,
                              .from = queries,
                              .with = keys,
                              .to = to,
                              .act = ACT_N,
                              .heads = heads,
                              .kv_heads = heads,
                              .head_dim = dim};
}

struct conv_step conv_depthwise(struct conv_step product, uint8_t size, uint8_t stride)
{
    product.kind = CONV_DEPTH;
    product.size = size, product.stride = stride;
    return product;
}

struct conv_step conv_norm(uint8_t from, uint8_t to, uint8_t norm)
{
    return (struct conv_step){
        .kind = CONV_NORM, .from = from, .to = to, .act = ACT_N, .norm = norm};
}

struct conv_shape conv_reserved(const struct conv_spec *s)
{
    return s->list ? (struct conv_shape){s->list, 1, s->channels}
                   : (struct conv_shape){s->side, s->side, s->channels ? s->channels : 3};
}

struct conv_shape conv_result(const struct conv_step *c, const struct conv_shape *shape,
                              struct conv_window *w)
{
    struct conv_shape out = shape[c->from];
    *w = (struct conv_window){1, 1, 0, 0};
    switch (c->kind) {
    case CONV_DENSE:
    case CONV_DEPTH:
        *w = conv_over(shape[c->from], c->size, c->stride, c->same, &out);
        out.channels = c->out;
        break;
    case CONV_MEAN:
        out.height = out.width = c->size;
        break;
    case CONV_JOIN:
        out.channels += shape[c->with].channels;
        break;
    case CONV_ATTEND:
        out.channels = c->heads * (c->v_dim ? c->v_dim : c->head_dim);
        break;
    case CONV_SPLIT:
        out = conv_windows(out, c->size);
        break;
    case CONV_MERGE:
        out.height = shape[c->with].height;
        out.width = shape[c->with].width;
        break;
    case CONV_RELATE:
        out.channels = c->heads * (2 * c->head_dim + c->kv_heads);
        break;
    case CONV_CHANNELS:
        out.channels /= 3;
        break;
    case CONV_APPEND:
        out.height = (uint32_t)(conv_rows(out) + conv_rows(shape[c->with]));
        out.width = 1;
        break;
    case CONV_ROWS:
        out = (struct conv_shape){c->rows, 1, c->out};
        break;
    case CONV_PLACES:
    case CONV_AXES:
    case CONV_NORM:
    case CONV_GATE:
    case CONV_TIMES:
        break;
    }
    return out;
}

static bool equal(struct conv_shape a, struct conv_shape b)
{
    return a.height == b.height && a.width == b.width && a.channels == b.channels;
}

static bool fits(const struct conv_step *c, const struct conv_shape *shape)
{
    const struct conv_shape in = shape[c->from], with = shape[c->with];
    struct conv_window w;
    const struct conv_shape out = conv_result(c, shape, &w);
    if (c->add && !equal(out, shape[c->to]))
        return false;
    if (c->kind == CONV_MEAN)
        return in.height % c->size == 0 && in.width == in.height;
    if (c->fitted)
        return in.height && in.width &&
               (c->kind == CONV_PLACES || (in.height == in.width && in.height <= c->size));
    if (c->kind == CONV_PLACES)
        return in.height == c->size && in.width == c->size;
    if (c->kind == CONV_RELATE) /* windows, or a square */
        return conv_rows(in) % ((size_t)c->size * c->size) == 0;
    if (c->kind == CONV_CHANNELS) /* enough memory for a group */
        return in.channels % (3 * c->heads) == 0 &&
               in.channels / (3 * c->heads) <= CONV_MOST_CHANNELS;
    if (c->kind == CONV_APPEND)
        return in.channels == with.channels;
    if (c->kind == CONV_TIMES)
        return equal(in, with);
    if (c->kind == CONV_AXES)
        return in.height <= c->rows && in.width <= c->rows;
    if (c->kind == CONV_JOIN)
        return with.height <= in.height && with.width <= in.width;
    return true;
}

bool conv_shapes(const struct conv_spec *s, uint32_t n, uint32_t height, uint32_t width,
                 struct conv_shape shape[CONV_GRIDS])
{
    memset(shape, 0, CONV_GRIDS * sizeof(*shape));
    shape[0] = (struct conv_shape){height, width, s->channels ? s->channels : 3};
    for (uint32_t i = 0; i < n; i++) {
        struct conv_window w;
        if (!fits(&s->step[i], shape))
            return false;
        shape[s->step[i].to] = conv_result(&s->step[i], shape, &w);
    }
    return true;
}
