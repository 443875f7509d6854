#include "model-server/quantize/quantize.h"
#include "common/clock.h"
#include "common/gguf/set.h"
#include "common/hash.h"
#include "common/log/log.h"
#include <stdlib.h>
#include <string.h>

static const int64_t REPORT_NS = 2000000000;

/* ---------------------------------------------------------------- a layer at hand */

int layer_tensor_read(struct layer_tensor *t, struct err *e)
{
    uint64_t n = 1;
    if (t->w)
        return 0;
    for (int i = 0; i < t->s->t->n_dims; i++)
        n *= t->s->t->dims[i];
    if (!(t->w = malloc((n ? n : 1) * sizeof(float))))
        return err_nomem(e);
    source_numbers(t->s->t, 0, n, t->w);
    return 0;
}

struct layer_tensor *layer_set_find(const struct layer_set *s, enum role role, int expert,
                                    const char *suffix)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const struct arch_use *u = &s->t[i].s->use;
        if (u->role == role && u->expert == expert && strcmp(u->suffix, suffix) == 0)
            return &s->t[i];
    }
    return NULL;
}

static void set_free(struct layer_set *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        free(s->t[i].w), free(s->t[i].weights), free(s->t[i].by);
    free(s->t);
    *s = (struct layer_set){0};
}

bool run_quantises(const struct run *r, const struct source_tensor *t)
{
    for (uint32_t i = 0; i < r->o->n_exclude; i++)
        if (strstr(t->t->name, r->o->exclude[i]))
            return false;
    return t->linear;
}

static int set_open(struct run *r, uint32_t unit, struct layer_set *s, struct err *e)
{
    *s = (struct layer_set){.layer = (int)unit - 1};
    if (!(s->t = calloc(r->source.n ? r->source.n : 1, sizeof(*s->t))))
        return err_nomem(e);
    for (uint32_t i = 0; i < r->source.n; i++)
        if (r->source.tensors[i].unit == unit)
            s->t[s->n++] = (struct layer_tensor){
                .s = &r->source.tensors[i], .quantise = run_quantises(r, &r->source.tensors[i])};
    return 0;
}

/* Sets the input statistics of each matrix. */
static int set_join(struct run *r, struct layer_set *s, struct err *e)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct layer_tensor *t = &s->t[i];
        if (!t->s->linear)
            continue;
        t->in = tap_find(&r->tap, t->s->t->name, 0);
        if (!t->in) {
            LOG(LOG_DEBUG, "no token of the text reached a matrix", LOGS("tensor", t->s->t->name));
            continue;
        }
        if (!t->in->squares)
            continue;
        if (!(t->weights = malloc(t->s->cols * sizeof(float))))
            return err_nomem(e);
        for (uint64_t c = 0; c < t->s->cols; c++)
            t->weights[c] = (float)(t->in->squares[c] / (double)t->in->rows);
        t->weight = t->weights;
    }
    return 0;
}

/* ---------------------------------------------------------------- the layers */

static const float *numbers_of(void *arg, const char *name)
{
    const struct run *r = arg;
    for (uint32_t i = 0; r->at && i < r->at->n; i++)
        if (r->at->t[i].quantise && r->at->t[i].w && strcmp(r->at->t[i].s->t->name, name) == 0)
            return r->at->t[i].w;
    return NULL;
}

/* Runs the original layer over the text; the tap records the inputs of its matrices. */
static int observe(struct run *r, uint32_t layer, struct err *e)
{
    r->tap.needs = r->method->needs;
    tap_begin(&r->tap, r->walk);
    if (walk_load(r->walk, layer, e) || calibration_run(&r->calibration, layer, e))
        return -1;
    return r->tap.oom ? err_nomem(e) : 0;
}

/* The same with the quantised weights: the next layer's rows. */
static int propagate(struct run *r, uint32_t layer, struct layer_set *s, struct err *e)
{
    walk_drop(r->walk, layer);
    tap_end(&r->tap, r->walk);
    r->tap.needs = 0;
    r->tap.replace = numbers_of;
    r->tap.arg = r;
    r->at = s;
    tap_begin(&r->tap, r->walk);
    const int rc =
        walk_load(r->walk, layer, e) || calibration_run(&r->calibration, layer, e) ? -1 : 0;
    r->at = NULL;
    r->tap.replace = NULL;
    return rc;
}

static int one_unit(struct run *r, uint32_t unit, struct err *e)
{
    struct layer_set s;
    const uint32_t layer = unit - 1;
    int rc = set_open(r, unit, &s, e);
    if (rc == 0 && unit && r->calibrated)
        rc = observe(r, layer, e) || set_join(r, &s, e) ? -1 : 0;
    if (rc == 0 && unit && r->calibrated && r->method->fold)
        rc = r->method->fold(r, &s, e);
    if (rc == 0)
        rc = r->target->write(r, &s, e);
    if (rc == 0 && unit && r->calibrated && r->method->propagates && unit + 1 < r->source.n_units)
        rc = propagate(r, layer, &s, e);
    if (unit && r->calibrated) {
        walk_drop(r->walk, layer);
        tap_end(&r->tap, r->walk);
    }
    set_free(&s);
    return rc;
}

static int all_units(struct run *r, struct err *e)
{
    const int64_t began = clock_ns();
    int64_t reported = began;
    const uint32_t from = r->out.done;
    for (uint32_t unit = from; unit < r->source.n_units; unit++) {
        if (one_unit(r, unit, e) || out_done(&r->out, unit + 1, e))
            return -1;
        const int64_t now = clock_ns();
        const uint32_t done = unit + 1 - from, left = r->source.n_units - unit - 1;
        if (now - reported < REPORT_NS && left)
            continue;
        reported = now;
        LOG(LOG_INFO, "quantising", LOGI("layers", unit), LOGI("of", r->source.n_units - 1),
            LOGI("seconds_left", (now - began) * left / done / 1000000000));
    }
    return 0;
}

/* ---------------------------------------------------------------- a run */

static int choose(struct run *r, struct err *e)
{
    const struct quantize_options *o = r->o;
    if (!(r->method = method_find(o->method, e)))
        return -1;
    r->target = r->method->layout ? &target_folder : &target_gguf;
    r->calibrated = r->method->needs && !(o->calibration && strcmp(o->calibration, "none") == 0);
    if (r->method->needs && !r->calibrated && r->method->layout)
        return err_set(e, ERR_VALIDATION,
                       "--method %s needs a text: --calibration none is not for it", o->method);
    const struct layout *l = r->method->layout;
    if (o->packed && (!l || l == &layout_int8))
        return err_set(e, ERR_VALIDATION, "--layout packed is not for --method %s", o->method);
    if (o->packed)
        l = &layout_pack;
    r->layout = l;
    const uint32_t bits = o->bits ? o->bits : r->method->bits;
    if (!l)
        return o->bits || o->group ? err_set(e, ERR_VALIDATION,
                                             "--bits and --group-size: the type of GGUF says both")
                                   : 0;
    if (bits > 8 || !(l->bits & 1u << bits))
        return err_set(e, ERR_VALIDATION, "--bits %u: --method %s does not write such codes", bits,
                       o->method);
    if (l->symmetric_only && o->asymmetric)
        return err_set(e, ERR_VALIDATION, "--asymmetric: --method %s has no zero points",
                       o->method);
    if (l == &layout_awq && o->symmetric)
        return err_set(e, ERR_VALIDATION, "--symmetric: --method %s has zero points", o->method);
    r->kind = (struct layout_kind){.grid = {.bits = bits,
                                            .symmetric = o->symmetric || l->symmetric_only ||
                                                         (r->method->symmetric && !o->asymmetric),
                                            .scale = SCALE_F16,
                                            .least_zero = l == &layout_gptq},
                                   .group = o->row_group ? 0
                                            : o->group   ? o->group
                                                         : r->method->group,
                                   .desc_act = o->order == GPTQ_GROUPS,
                                   .damp = o->damp};
    if (o->order == GPTQ_GROUPS && (strcmp(r->method->name, "gptq") != 0 || l != &layout_gptq))
        return err_set(e, ERR_VALIDATION,
                       "--act-order group is for --method gptq in its own layout");
    return 0;
}

/* Hash of what two runs must have in common for one to resume the other. */
static uint64_t key_of(const struct run *r)
{
    const struct quantize_options *o = r->o;
    const uint64_t numbers[10] = {
        r->source.identity, o->bits,
        o->group,           o->row_group,
        o->symmetric,       o->asymmetric,
        o->order,           r->calibrated,
        o->packed,          r->calibrated ? token_text_hash(&r->text) : 0};
    uint64_t h = hash_bytes(1, numbers, sizeof(numbers));
    h = hash_bytes(h, &o->damp, sizeof(o->damp));
    h = hash_bytes(h, o->method, strlen(o->method));
    for (uint32_t i = 0; i < o->n_exclude; i++)
        h = hash_bytes(h, o->exclude[i], strlen(o->exclude[i]) + 1);
    return h;
}

static int prepare(struct run *r, struct err *e)
{
    const struct quantize_options *o = r->o;
    const char *path =
        o->calibration && strcmp(o->calibration, "none") == 0 ? NULL : o->calibration;
    if (choose(r, e))
        return -1;
    if (!r->workers.ops->observe)
        return err_set(e, ERR_VALIDATION, "the %s backend does not show activations: --device cpu",
                       r->workers.ops->name);
    if (!(r->walk = walk_open(o->model, o->context, r->workers.ops, r->workers.dev, e)) ||
        source_open(&r->source, r->walk, o->model, e))
        return -1;
    const uint32_t positions = walk_spec(r->walk)->max_positions;
    const uint32_t context = positions && positions < o->context ? positions : o->context;
    if ((r->calibrated || o->report) &&
        token_text_read(&r->text, o->model, path, context, o->tokens, e))
        return -1;
    if (r->layout && walk_checkpoint(r->walk)->gguf.n)
        return err_set(e, ERR_VALIDATION, "%s: a GGUF file becomes another one only (gguf:TYPE)",
                       o->model);
    if (r->layout && walk_spec(r->walk)->transposed)
        return err_set(e, ERR_VALIDATION,
                       "%s: linear layers are stored [in, out]: not quantised to this layout",
                       o->model);
    const struct source_tensor *any = source_find(&r->source, W_EMBED, -1, -1, ".weight");
    if (r->layout == &layout_int8 || r->layout == &layout_pack)
        r->kind.grid.scale = !any || any->t->type == T_F32 ? SCALE_F32
                             : any->t->type == T_F16       ? SCALE_F16
                                                           : SCALE_BF16;
    r->tap.workers = &r->workers;
    return 0;
}

static int work(struct run *r, struct err *e)
{
    if (prepare(r, e) || out_open(&r->out, r->o->out, key_of(r), !r->method->layout, e))
        return -1;
    const bool resumed = r->out.resumed;
    if (r->target->declare(r, e))
        return -1;
    if (resumed)
        LOG(LOG_INFO, "going on with an earlier run", LOGI("layers", r->out.done - 1),
            LOGI("of", r->source.n_units - 1));
    const uint32_t next = r->out.done ? r->out.done - 1 : 0;
    if (r->calibrated && calibration_open(&r->calibration, &r->text, r->walk, &r->out, next, e))
        return -1;
    r->tap.every = r->calibration.rows / TAP_SAMPLE + 1;
    if (all_units(r, e))
        return -1;
    calibration_close(&r->calibration);
    return r->target->finish(r, e) || out_finish(&r->out, e) ? -1 : 0;
}

int quantize_model(const struct quantize_options *o, const struct backend_ops *ops,
                   struct device *dev, struct comparison *c, struct err *e)
{
    struct run r = {.o = o, .workers = {ops, dev}};
    int rc = work(&r, e);
    calibration_close(&r.calibration);
    if (r.free_state)
        r.free_state(r.state);
    out_close(&r.out, rc && !r.out.done); /* nothing to go on with */
    source_close(&r.source);
    walk_close(r.walk);
    if (rc == 0 && o->report && quantize_compare(o->model, o->out, &r.text, ops, dev, c, e))
        rc = err_wrap(e, "%s is written, but could not be measured", o->out);
    token_text_free(&r.text);
    return rc;
}
