/* tower_conv_memory.c - working memory of a tower of convolutions. */
#include "model-server/encoder/tower_conv.h"
#include <stdlib.h>

/* What the steps need over one picture. */
struct need {
    size_t grid[CONV_GRIDS]; /* floats */
    size_t cols, rows;       /* floats of a row */
    size_t host[2], host_out;
    size_t gate, turns;
    uint32_t kv_rows, n_layers;
    uint32_t result; /* rows of the last grid 0 */
    struct kv_layer layer[ENCODER_MAX_CONV_LAYERS];
};

static void grow(size_t *most, size_t n) { *most = n > *most ? n : *most; }

/* The cache's layer with the step's heads: one for all such steps. */
static uint32_t layer_of(struct need *n, const struct conv_step *c)
{
    const struct kv_layer own = {
        .n_heads = c->kv_heads, .k_dim = c->head_dim, .v_dim = c->v_dim ? c->v_dim : c->head_dim};
    uint32_t i = 0;
    while (i < n->n_layers && (n->layer[i].n_heads != own.n_heads ||
                               n->layer[i].k_dim != own.k_dim || n->layer[i].v_dim != own.v_dim))
        i++;
    if (i == n->n_layers && i < ENCODER_MAX_CONV_LAYERS)
        n->layer[n->n_layers++] = own;
    return i < ENCODER_MAX_CONV_LAYERS ? i : 0;
}

static void need_step(const struct conv_step *c, const struct conv_shape *shape, struct need *n)
{
    struct conv_window w;
    const struct conv_shape in = shape[c->from], out = conv_result(c, shape, &w);
    grow(&n->grid[c->from], conv_floats(in));
    grow(&n->grid[c->to], conv_floats(out));
    if (c->add)
        grow(&n->rows, out.channels);
    if (c->kind == CONV_DENSE && tower_conv_on_host(c)) {
        grow(&n->cols, (size_t)c->size * c->size * in.channels);
        grow(&n->host_out, (size_t)c->size * c->size * in.channels);
    }
    if (tower_conv_on_host(c)) {
        grow(&n->host[0], conv_floats(in));
        grow(&n->host_out, out.channels);
    }
    if (c->kind == CONV_CHANNELS)
        grow(&n->gate, (size_t)out.channels * out.channels / c->heads);
    if (tower_conv_reads_two(c))
        grow(&n->host[1], conv_floats(shape[c->with]));
    if (c->kind == CONV_GATE)
        grow(&n->gate, 2 * (size_t)in.channels + c->out);
    if (c->kind != CONV_ATTEND)
        return;
    if (c->turns)
        grow(&n->turns, conv_rows(in) * c->head_dim);
    const uint32_t each = tower_conv_sequence(c, shape[c->with]), some = TOWER_CONV_ROWS / each + 2;
    const uint32_t all = (uint32_t)conv_rows(shape[c->with]) / each;
    const uint32_t rows = (all < some ? all : some) * tower_conv_cached(each);
    n->kv_rows = rows > n->kv_rows ? rows : n->kv_rows;
}

/* False: conv_shapes() is. `layers`: NULL, or the layer of each step. */
static bool needs(const struct conv_spec *s, uint32_t height, uint32_t width, struct need *n,
                  struct tower_conv_part *layers)
{
    struct conv_shape shape[CONV_GRIDS];
    struct conv_window w;
    *n = (struct need){0};
    if (!conv_shapes(s, s->n, height, width, shape))
        return false;
    conv_shapes(s, 0, height, width, shape);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct conv_step *c = &s->step[i];
        need_step(c, shape, n);
        const uint32_t layer = c->kind == CONV_ATTEND ? layer_of(n, c) : 0;
        if (layers)
            layers[i].layer = layer;
        shape[c->to] = conv_result(c, shape, &w);
    }
    n->result = (uint32_t)conv_rows(shape[0]);
    return true;
}

static size_t padded(size_t floats) { return (floats + 15) & ~(size_t)15; }

static size_t device_floats(const struct need *n)
{
    size_t all =
        padded(n->cols * TOWER_CONV_ROWS) + padded(n->rows * TOWER_CONV_ROWS) + padded(n->turns);
    for (int i = 0; i < CONV_GRIDS; i++)
        all += padded(n->grid[i]);
    return all;
}

static struct kv_desc cache_of(const struct need *n)
{
    return (struct kv_desc){.n_layers = n->n_layers,
                            .n_blocks = (n->kv_rows + TOWER_CONV_BLOCK - 1) / TOWER_CONV_BLOCK,
                            .block_size = TOWER_CONV_BLOCK,
                            .dtype = KV_F32,
                            .layers = n->layer};
}

static uint32_t places_of(const struct need *n)
{
    const uint32_t most = n->kv_rows > n->result ? n->kv_rows : n->result;
    return most > TOWER_CONV_ROWS ? most : TOWER_CONV_ROWS;
}

uint64_t tower_conv_bytes(const struct tower *t, uint32_t height, uint32_t width)
{
    struct need n;
    if (!needs(&t->spec.conv, height, width, &n, NULL))
        return 0;
    const struct kv_desc k = cache_of(&n);
    uint64_t bytes = device_floats(&n) * sizeof(float) + n.gate * sizeof(float);
    if (!tower_conv_shares(t))
        bytes += (n.host[0] + n.host[1] + n.host_out * TOWER_CONV_ROWS) * sizeof(float);
    if (n.n_layers)
        bytes += k.n_blocks * t->d.ops->kv_block_bytes(&k);
    return bytes + 2 * sizeof(uint32_t) * places_of(&n);
}

void tower_conv_free(struct tower *t)
{
    struct tower_conv *c = &t->conv;
    if (c->kv)
        t->d.ops->kv_free(t->d.dev, c->kv);
    t->d.ops->free(t->d.dev, c->device);
    free(c->host[0]), free(c->host[1]), free(c->host_out), free(c->gate);
    free(c->zeros), free(c->places), free(c->slots), free(c->blocks), free(c->spans);
    c->kv = NULL;
    c->device = c->host[0] = c->host[1] = c->host_out = c->gate = NULL;
    c->zeros = c->places = c->slots = c->blocks = NULL;
    c->spans = NULL;
    c->height = c->width = 0;
}

/* Memory of the host's that CONV_GATE and places need, and copies of the device's. */
static int reserve_host(struct tower *t, const struct need *n)
{
    struct tower_conv *c = &t->conv;
    const uint32_t places = places_of(n);
    c->zeros = calloc(places, sizeof(*c->zeros));
    c->places = malloc(places * sizeof(*c->places));
    c->blocks = malloc(((size_t)places / TOWER_CONV_BLOCK + 1) * sizeof(*c->blocks));
    c->slots = malloc(places * sizeof(*c->slots));
    c->spans = malloc(((size_t)places / TOWER_CONV_BLOCK + 2) * sizeof(*c->spans));
    c->gate = malloc((n->gate + 1) * sizeof(float));
    if (!c->zeros || !c->places || !c->slots || !c->blocks || !c->spans || !c->gate)
        return -1;
    for (uint32_t i = 0; i < places; i++)
        c->places[i] = i;
    for (uint32_t i = 0; i <= places / TOWER_CONV_BLOCK; i++)
        c->blocks[i] = i;
    if (tower_conv_shares(t))
        return 0;
    c->host[0] = malloc((n->host[0] + 1) * sizeof(float));
    c->host[1] = malloc((n->host[1] + 1) * sizeof(float));
    c->host_out = malloc((n->host_out * TOWER_CONV_ROWS + 1) * sizeof(float));
    return c->host[0] && c->host[1] && c->host_out ? 0 : -1;
}

int tower_conv_reserve(struct tower *t, uint32_t height, uint32_t width, struct err *e)
{
    struct tower_conv *c = &t->conv;
    struct need n;
    if (c->device && height == c->height && width == c->width)
        return 0;
    if (!needs(&t->spec.conv, height, width, &n, c->part))
        return err_set(e, ERR_VALIDATION,
                       "a picture of %u x %u pixels does not go through the "
                       "convolutions of this tower",
                       height, width);
    tower_conv_free(t);
    const struct kv_desc k = cache_of(&n);
    if (reserve_host(t, &n))
        return err_nomem(e);
    if (!(c->device = t->d.ops->alloc(t->d.dev, device_floats(&n) * sizeof(float), e)) ||
        (n.n_layers && !(c->kv = t->d.ops->kv_new(t->d.dev, &k, e))))
        return -1;
    float *at = c->device;
    for (int i = 0; i < CONV_GRIDS; i++) {
        c->grid[i] = at;
        at += padded(n.grid[i]);
    }
    c->cols = at;
    c->rows = at + padded(n.cols * TOWER_CONV_ROWS);
    c->turns = c->rows + padded(n.rows * TOWER_CONV_ROWS);
    c->turned = (struct conv_shape){0};
    c->height = height;
    c->width = width;
    return 0;
}
