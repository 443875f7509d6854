#include "model-server/encoder/tower_conv.h"
#include "model-server/encoder/resample_kernels.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROWS = 16 }; /* of a part */

/* ---------------------------------------------------------------- on the host */

/* Rows of a step's result that threads share. */
struct host_job {
    const struct conv_step *step;
    const struct tower_conv_part *part;
    const struct conv_kernels *kernels;
    const float *in, *with; /* whole grids */
    struct conv_shape shape, of_with, result;
    struct conv_window w;
    const float *gate;
    float *const *tables; /* of CONV_PLACES and CONV_RELATE */
    float *out;           /* row `first` */
    size_t first;
};

static void multiply(const struct host_job *j, size_t begin, size_t end)
{
    const size_t n = j->shape.channels;
    for (size_t i = begin; i < end; i++)
        for (size_t c = 0; c < n; c++)
            j->out[(i - j->first) * n + c] = j->in[i * n + c] * j->gate[c];
}

/* Rows [first + begin, first + end). */
static void host_rows(void *arg, int thread, size_t begin, size_t end)
{
    const struct host_job *j = arg;
    const size_t width = j->result.channels, from = j->first + begin, to = j->first + end;
    float *out = j->out - j->first * width; /* row 0 of the whole result */
    (void)thread;
    switch (j->step->kind) {
    case CONV_DENSE:
        conv_gather(j->out + begin * j->w.size * j->w.size * j->shape.channels, j->in, j->shape,
                    j->result, &j->w, from, to);
        break;
    case CONV_DEPTH:
        conv_depth(out, j->in, j->shape, j->result, &j->w, j->part->host[0], j->part->host[1],
                   j->kernels, from, to);
        break;
    case CONV_MEAN:
        conv_mean(out, j->in, j->shape, j->result, from, to);
        break;
    case CONV_JOIN:
        conv_join(out, j->in, j->shape, j->with, j->of_with, from, to);
        break;
    case CONV_GATE:
        multiply(j, from, to);
        break;
    case CONV_PLACES:
        for (size_t i = from * width; i < to * width; i++)
            out[i] = j->in[i] + j->tables[0][i];
        break;
    case CONV_SPLIT:
        conv_split(out, j->in, j->shape, j->step->size, from, to);
        break;
    case CONV_MERGE:
        conv_merge(out, j->in, j->result, j->step->size, from, to);
        break;
    case CONV_RELATE:
        conv_relate(out, j->in,
                    &(struct conv_relation){j->step->fitted ? j->shape.height : j->step->size,
                                            j->step->heads, j->step->kv_heads, j->step->head_dim,
                                            j->tables[0], j->tables[1]},
                    from, to);
        break;
    case CONV_CHANNELS:
        conv_channels(out, j->in, j->shape, j->step->heads, j->gate, from, to);
        break;
    case CONV_APPEND:
        conv_append(out, j->in, conv_rows(j->shape), j->with, width, from, to);
        break;
    case CONV_TIMES:
        for (size_t i = from * width; i < to * width; i++)
            out[i] = j->in[i] * j->with[i];
        break;
    case CONV_AXES:
        conv_axes(out, j->in, j->shape, j->tables[0], j->tables[1], j->tables[2], from, to);
        break;
    case CONV_ROWS:
        memcpy(out + from * width, j->tables[0] + from * width, (to - from) * width * sizeof(*out));
        break;
    case CONV_NORM:
    case CONV_ATTEND:
        assert(!"these are operations of the backend");
    }
}

/* y = act(W x + b) with rows of W one after the other. */
static void dense(float *y, const float *w, const float *b, const float *x, uint32_t rows,
                  uint32_t cols)
{
    for (size_t r = 0; r < rows; r++) {
        float sum = b[r];
        for (size_t c = 0; c < cols; c++)
            sum = fmaf(w[r * cols + c], x[c], sum);
        y[r] = sum;
    }
}

/* The factors of CONV_GATE, to the first `channels` numbers of t->conv.gate. */
static void make_gate(struct tower *t, const struct conv_step *c, const float *in,
                      struct conv_shape s)
{
    const struct tower_conv_part *p = &t->conv.part[t->conv.step];
    float *gate = t->conv.gate, *mean = gate + s.channels, *inner = mean + s.channels;
    conv_mean(mean, in, s, (struct conv_shape){1, 1, s.channels}, 0, 1);
    dense(inner, p->host[0], p->host[1], mean, c->out, s.channels);
    for (uint32_t i = 0; i < c->out; i++)
        inner[i] = inner[i] > 0 ? inner[i] : 0;
    dense(gate, p->host[2], p->host[3], inner, s.channels, c->out);
    for (uint32_t i = 0; i < s.channels; i++)
        gate[i] = 1 / (1 + expf(-gate[i]));
}

/* Channels [begin, end) of CONV_CHANNELS, whose factors `out` has. */
static void factors(void *arg, int thread, size_t begin, size_t end)
{
    const struct host_job *j = arg;
    (void)thread;
    conv_channel_factors(j->out, j->in, j->shape, j->step->heads, begin, end);
}

static void on_threads(struct tower *t, void (*run)(void *, int, size_t, size_t), void *job,
                       size_t n)
{
    if (t->d.ops->host_run)
        t->d.ops->host_run(t->d.dev, run, job, n);
    else
        run(job, 0, 0, n);
}

/* What the first part of a step computes for all. */
static void prepare(struct tower *t, const struct conv_step *s, const struct host_job *j)
{
    if (s->kind == CONV_GATE)
        make_gate(t, s, j->in, j->shape);
    if (s->kind != CONV_CHANNELS)
        return;
    struct host_job all = *j;
    all.out = t->conv.gate;
    on_threads(t, factors, &all, j->result.channels);
}

/* Tables of another size than the grid's are fitted to it, once for each shape. */
static int fit_tables(struct tower_conv_part *p, const struct conv_step *c, struct conv_shape s,
                      struct err *e)
{
    const uint32_t of = 2 * c->size - 1, rows = 2 * s.height - 1, dim = c->kv_heads;
    if (s.height == p->fits.height && s.width == p->fits.width)
        return 0;
    p->fits = (struct conv_shape){0};
    if (c->kind == CONV_RELATE) {
        free(p->host[2]), free(p->host[3]);
        p->host[2] = malloc((size_t)rows * dim * sizeof(float));
        p->host[3] = malloc((size_t)rows * dim * sizeof(float));
        if (!p->host[2] || !p->host[3])
            return err_nomem(e);
        conv_fit_rows(p->host[2], rows, p->host[0], of, dim);
        conv_fit_rows(p->host[3], rows, p->host[1], of, dim);
    } else {
        float *scratch = malloc(c->size * ((size_t)s.width * s.channels + 1) * sizeof(*scratch));
        free(p->host[1]);
        p->host[1] = malloc(conv_floats(s) * sizeof(float));
        if (scratch && p->host[1])
            conv_fit_places(p->host[1], s, p->host[0], c->size, scratch);
        free(scratch);
        if (!scratch || !p->host[1])
            return err_nomem(e);
    }
    p->fits = s;
    return 0;
}

/* A grid in host memory: on a device with its own, a copy that is made by the step's first part. */
static const float *in_host(struct tower *t, uint8_t grid, int copy, struct err *e)
{
    struct tower_conv *c = &t->conv;
    const size_t bytes = conv_floats(c->shape[grid]) * sizeof(float);
    if (tower_conv_shares(t))
        return c->grid[grid];
    if (c->row == 0 && t->d.ops->download(t->d.dev, c->host[copy], c->grid[grid], bytes, e))
        return NULL;
    return c->host[copy];
}

/* Computes rows [c->row, c->row + n) of the step on the host, to `to` of the device: for
 * CONV_DENSE the windows, otherwise the result. */
static int run_on_host(struct tower *t, const struct conv_step *s, uint32_t n, float *to,
                       struct err *e)
{
    struct tower_conv *c = &t->conv;
    const bool reads = s->kind != CONV_ROWS;
    struct host_job j = {.step = s,
                         .part = &c->part[c->step],
                         .kernels = &c->kernels,
                         .in = reads ? in_host(t, s->from, 0, e) : NULL,
                         .shape = c->shape[s->from],
                         .of_with = c->shape[s->with],
                         .gate = c->gate,
                         .first = c->row};
    j.result = conv_result(s, c->shape, &j.w);
    j.tables = j.part->host;
    if (s->fitted && (j.shape.height != s->size || j.shape.width != s->size)) {
        if (fit_tables(&c->part[c->step], s, j.shape, e))
            return -1;
        j.tables += s->kind == CONV_RELATE ? 2 : 1;
    }
    if ((reads && !j.in) || (tower_conv_reads_two(s) && !(j.with = in_host(t, s->with, 1, e))))
        return -1;
    if (c->row == 0)
        prepare(t, s, &j);
    j.out = tower_conv_shares(t) ? to : c->host_out;
    on_threads(t, host_rows, &j, n);
    if (tower_conv_shares(t))
        return 0;
    const size_t row =
        s->kind == CONV_DENSE ? (size_t)s->size * s->size * j.shape.channels : j.result.channels;
    return t->d.ops->upload(t->d.dev, to, c->host_out, n * row * sizeof(float), e);
}

/* ---------------------------------------------------------------- on the device */

/* A step of the backend over n rows. */
static struct ragged batch(const struct tower_conv *c, uint32_t n)
{
    c->spans[0] = (struct span){.n = n, .kv_len = n, .blocks = c->blocks};
    return (struct ragged){.n_tokens = n,
                           .n_spans = 1,
                           .ids = c->zeros,
                           .pos = c->places,
                           .slots = c->places,
                           .spans = c->spans};
}

/* The same over rows [first, first + n) of a step that attends, whose sequences are windows or the
 * whole grid. Every row sees all of its sequence. The cache begins with the first row's window. */
static struct ragged sequences(const struct tower_conv *c, const struct conv_step *s,
                               uint32_t first, uint32_t n)
{
    const uint32_t each = tower_conv_sequence(s, c->shape[s->with]);
    const uint32_t blocks = tower_conv_cached(each) / TOWER_CONV_BLOCK;
    struct ragged b = batch(c, n);
    if (!s->size) { /* there may be more queries than keys */
        c->spans[0].kv_len = each;
        return b;
    }
    b.n_spans = 0;
    for (uint32_t at = first, some; at < first + n; at += some) {
        const uint32_t nth = at / each - first / each, left = each - at % each;
        some = first + n - at < left ? first + n - at : left;
        c->spans[b.n_spans++] = (struct span){.first = at - first,
                                              .n = some,
                                              .kv_len = each,
                                              .blocks = c->blocks + (size_t)nth * blocks};
    }
    for (uint32_t i = 0; i < n; i++)
        c->slots[i] =
            ((first + i) / each - first / each) * tower_conv_cached(each) + (first + i) % each;
    b.slots = c->slots;
    return b;
}

/* The angles of the places of grid `s`, unless they are those of the last such step. */
static int upload_turns(struct tower *t, struct conv_shape s, struct err *e)
{
    struct tower_conv *c = &t->conv;
    const uint32_t n = (uint32_t)conv_rows(s), dim = t->spec.blocks.rope[0].dim;
    if (c->turned.height == s.height && c->turned.width == s.width)
        return 0;
    float *rows = malloc((size_t)n * dim * sizeof(*rows));
    uint32_t(*axes)[3] = calloc(n, sizeof(*axes));
    for (uint32_t i = 0; axes && i < n; i++) {
        axes[i][1] = i / s.width;
        axes[i][2] = i % s.width;
    }
    int rc = rows && axes ? 0 : err_nomem(e);
    if (rc == 0) {
        struct ragged b = batch(c, n);
        b.axes = (const uint32_t(*)[3])axes;
        rope_rows(&c->rope, &b, rows);
        rc = t->d.ops->upload(t->d.dev, c->turns, rows, (size_t)n * dim * sizeof(*rows), e);
    }
    if (rc == 0)
        c->turned = s;
    free(rows), free(axes);
    return rc;
}

/* Stores the keys and values of rows [first, first + n). */
static int store(struct tower *t, const struct conv_step *s, uint32_t first, uint32_t n,
                 struct err *e)
{
    struct tower_conv *c = &t->conv;
    const struct ragged b = sequences(c, s, first, n);
    const struct tower_conv_part *p = &c->part[c->step];
    float *rows = c->grid[s->with] + (size_t)first * c->shape[s->with].channels;
    struct rope_kv how = {.n_heads = s->with == s->from ? s->heads : 0,
                          .n_kv_heads = s->kv_heads,
                          .head_dim = s->head_dim};
    if (s->turns) {
        how.rot_dim = t->spec.blocks.rope[0].dim;
        how.rope = c->turns + (size_t)first * how.rot_dim;
        how.q_norm = p->head_norm[0];
        how.k_norm = p->head_norm[1];
        how.norm_kind = NORM_RMS;
        how.norm_eps = s->eps != 0 ? s->eps : t->spec.conv.norm.eps;
        if (upload_turns(t, c->shape[s->with], e))
            return -1;
    }
    if (t->d.ops->step_begin(t->d.dev, &b, e))
        return -1;
    t->d.ops->rope_kv(t->d.dev, rows, c->kv, p->layer, &how);
    return t->d.ops->step_end(t->d.dev, e);
}

/* Those that the next n rows see: of their windows, or of the whole grid, once. */
static int store_seen(struct tower *t, const struct conv_step *s, uint32_t n, struct err *e)
{
    const uint32_t each = tower_conv_sequence(s, t->conv.shape[s->with]), row = t->conv.row;
    if (!s->size)
        return row ? 0 : store(t, s, 0, each, e);
    const uint32_t first = row / each * each, end = (row + n + each - 1) / each * each;
    return store(t, s, first, end - first, e);
}

static void attend(struct tower *t, const struct conv_step *s, float *to, const float *from)
{
    const struct tower_conv *c = &t->conv;
    t->d.ops->attention(t->d.dev, to, from, c->shape[s->from].channels, c->kv,
                        c->part[c->step].layer,
                        &(struct attn){.n_heads = s->heads,
                                       .n_kv_heads = s->kv_heads,
                                       .head_dim = s->head_dim,
                                       .scale = s->v_dim ? 1 : 1 / sqrtf((float)s->head_dim),
                                       .both = true});
}

/* The operations of rows [c->row, c->row + n): `to` is their place, or that of what is added. */
static int run_on_device(struct tower *t, const struct conv_step *s, uint32_t n, uint32_t width,
                         float *to, struct err *e)
{
    struct tower_conv *c = &t->conv;
    const struct backend_ops *ops = t->d.ops;
    const struct tower_conv_part *p = &c->part[c->step];
    const float *from = c->grid[s->from] + (size_t)c->row * c->shape[s->from].channels;
    const bool attends = s->kind == CONV_ATTEND;
    const struct ragged b = attends ? sequences(c, s, c->row, n) : batch(c, n);
    if (ops->step_begin(t->d.dev, &b, e))
        return -1;
    if (s->kind == CONV_DENSE)
        ops->linear(t->d.dev, to, tower_conv_on_host(s) ? c->cols : from, n, p->w, p->bias);
    if (attends)
        attend(t, s, to, from);
    if (s->norm && s->kind != CONV_GATE && s->kind != CONV_RELATE)
        ops->norm(t->d.dev, to, s->kind == CONV_NORM ? from : to, n, width, &p->norm);
    if (s->act != ACT_N)
        ops->act(t->d.dev, to, n, width, s->act);
    if (s->add)
        ops->add_norm(t->d.dev, NULL, c->grid[s->to] + (size_t)c->row * width, to, 1, n, width,
                      NULL);
    return ops->step_end(t->d.dev, e);
}

/* ---------------------------------------------------------------- steps */

/* Multiply-adds of a row of the step's result; at least 1. */
static uint64_t row_cost(const struct tower_conv *c, const struct conv_step *s)
{
    const struct conv_shape in = c->shape[s->from], with = c->shape[s->with];
    const uint64_t places = (uint64_t)s->size * s->size;
    switch (s->kind) {
    case CONV_DENSE:
        return places * in.channels * s->out;
    case CONV_DEPTH:
        return places * s->out;
    case CONV_ATTEND:
        return 2 * (uint64_t)s->heads * s->head_dim * tower_conv_sequence(s, with);
    case CONV_RELATE:
        return 2 * (uint64_t)s->heads * s->size * s->kv_heads;
    case CONV_CHANNELS: /* the factors, too */
        return 2 * (uint64_t)(in.channels / 3) * (in.channels / 3 / s->heads);
    case CONV_ROWS:
        return s->out;
    default:
        return in.channels;
    }
}

/* The next part, of up to n rows. */
static int part(struct tower *t, const struct conv_step *s, uint32_t n, uint32_t width,
                struct err *e)
{
    struct tower_conv *c = &t->conv;
    float *result = c->grid[s->to] + (size_t)c->row * width, *to = s->add ? c->rows : result;
    if (s->kind == CONV_ATTEND && store_seen(t, s, n, e))
        return -1;
    if (tower_conv_on_host(s) && run_on_host(t, s, n, s->kind == CONV_DENSE ? c->cols : to, e))
        return -1;
    return run_on_device(t, s, n, width, to, e);
}

int tower_conv_on(struct tower *t, uint64_t most, uint64_t *done, bool *over, struct err *e)
{
    struct tower_conv *c = &t->conv;
    const struct conv_step *s = &t->spec.conv.step[c->step];
    struct conv_window w;
    const struct conv_shape result = conv_result(s, c->shape, &w);
    const uint64_t cost = row_cost(c, s), some = most / cost;
    const uint32_t rows = (uint32_t)conv_rows(result), left = rows - c->row;
    uint32_t n = some > TOWER_CONV_ROWS ? TOWER_CONV_ROWS : (uint32_t)some;
    n = n < LEAST_ROWS ? LEAST_ROWS : n;
    n = n > left ? left : n;
    if (part(t, s, n, result.channels, e))
        return -1;
    *done = n * cost;
    c->row += n;
    if (c->row == rows) {
        c->shape[s->to] = result;
        c->row = 0;
        c->step++;
    }
    *over = c->step == t->spec.conv.n;
    return 0;
}

/* The crop as rows: of features, or of the three numbers of a pixel, which are in planes. */
static void read_crop(const struct encoder_spec *s, const struct tower_image *image, uint32_t crop,
                      float *rows, size_t n)
{
    const size_t before = vision_pixels_before(image->plan, crop);
    const float *planes = image->pixels + 3 * before;
    if (s->of_features) {
        const size_t each = s->conv.channels;
        memcpy(rows, image->pixels + before * each, n * each * sizeof(*rows));
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++)
            rows[3 * i + k] = planes[k * n + i];
}

int tower_conv_begin(struct tower *t, const struct tower_image *image, uint32_t crop, struct err *e)
{
    struct tower_conv *c = &t->conv;
    const uint32_t height = vision_crop_height(image->plan, crop);
    const uint32_t width = vision_crop_width(image->plan, crop);
    const size_t n = (size_t)height * width;
    const size_t bytes = n * (t->spec.conv.channels ? t->spec.conv.channels : 3) * sizeof(float);
    if (tower_conv_reserve(t, height, width, e))
        return -1;
    conv_kernels_init(&c->kernels, resample_features());
    conv_shapes(&t->spec.conv, 0, height, width, c->shape);
    c->step = c->row = 0;
    float *rows = tower_conv_shares(t) ? c->grid[0] : malloc(bytes);
    if (!rows)
        return err_nomem(e);
    read_crop(&t->spec, image, crop, rows, n);
    if (tower_conv_shares(t))
        return 0;
    const int rc = t->d.ops->upload(t->d.dev, c->grid[0], rows, bytes, e);
    free(rows);
    return rc;
}

int tower_conv_project(struct tower *t, struct err *e)
{
    struct tower_conv *c = &t->conv;
    const uint32_t n = (uint32_t)conv_rows(c->shape[0]);
    const struct ragged b = batch(c, n);
    if (t->d.ops->step_begin(t->d.dev, &b, e))
        return -1;
    tower_project(t, &t->project, c->grid[0], 0, n, t->features[0]);
    return t->d.ops->step_end(t->d.dev, e);
}
