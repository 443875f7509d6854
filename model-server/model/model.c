#include "model-server/model/model.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include "model-server/model/end_tokens.h"
#include "model-server/model/kv_parts.h"
#include "model-server/model/mlx.h"
#include "model-server/model/model_impl.h"
#include "model-server/model/static_rows.h"
#include "model-server/model/unused.h"
#include "model-server/packed/packed.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- loading */

static int load_eos(struct model *m, const char *dir, struct err *e)
{
    uint32_t ids[MAX_END_TOKENS], n;
    if (end_tokens_read(dir, m->d.spec.vocab, ids, &n, e) != 0)
        return -1;
    m->eos = malloc((n ? n : 1) * sizeof(ids[0]));
    if (!m->eos)
        return err_nomem(e);
    memcpy(m->eos, ids, n * sizeof(ids[0]));
    m->info.eos = m->eos;
    m->info.n_eos = n;
    return 0;
}

static const struct tensor *first_of(const struct checkpoint *c, const struct arch *a,
                                     enum role role)
{
    const struct tensor *t = NULL;
    for (const char *p = a->names[role]; !t && p && *p; p += *p == '|') {
        char name[200];
        const size_t n = strcspn(p, "|");
        snprintf(name, sizeof(name), "%.*s.weight", (int)n, p);
        t = checkpoint_find_weight(c, a, name);
        p += n;
    }
    return t;
}

/* The checkpoint's type is that of the embedding, or of the head that it is tied to. Packed numbers
 * count as bfloat16, which can hold any of them, with a smaller error than the packing. */
static enum dtype stored_dtype(const struct checkpoint *c, const struct arch *a)
{
    const struct tensor *t = first_of(c, a, W_EMBED);
    t = t ? t : first_of(c, a, W_HEAD);
    return t && t->type == T_F16 ? DT_F16 : t && t->type != T_F32 ? DT_BF16 : DT_F32;
}

/* A token reads every matrix except tables that are only looked up, and its own experts. */
static void count_work(struct model *m)
{
    const struct decoder *d = &m->d;
    const struct moe_spec *moe = &d->spec.moe;
    m->info.dense_bytes = d->weights.bytes - d->tables.bytes - d->experts.bytes - d->drafts.bytes;
    m->info.dense_ops =
        2 * (d->weights.elements - d->tables.elements - d->experts.elements - d->drafts.elements);
    m->info.expert_bytes = d->experts.bytes;
    m->info.expert_ops = 2 * d->experts.elements;
    m->info.expert_share = moe->n_experts ? (double)moe->top_k / (moe->n_experts + moe->n_zero) : 0;
    const struct ragged one_of_two = {.n_tokens = 2, .n_out = 1};
    if (decoder_has_head(d) && decoder_runs_few(d, &one_of_two)) {
        m->info.few_dense_ops = 2 * (d->last_ffn - d->last_ffn_experts);
        m->info.few_expert_ops = 2 * d->last_ffn_experts;
    }
}

/* Positions of a sequence; of a model with two stacks both of them. */
static void fill_positions(struct model_info *i, const struct decoder_spec *s, bool encodes)
{
    i->max_positions = s->max_positions;
    i->bounded = s->learned_positions;
    if (s->attends_text && i->bounded && encodes) {
        i->max_positions =
            s->text_positions < s->max_positions ? s->text_positions : s->max_positions;
    } else if (s->attends_text && i->bounded) {
        i->text_positions = s->text_positions;
        i->answer_positions = s->max_positions;
        i->max_positions = s->text_positions + s->max_positions;
    }
    for (uint32_t r = 0; r < SPEC_MAX_ROPES; r++)
        i->by_length |= rope_by_length(&s->rope[r], s->max_positions);
}

/* What a model that encodes computes of a text. */
static void fill_head(struct model_info *i, const struct text_head *h)
{
    i->width = h->width;
    i->row_width = h->row_width;
    i->sparse = h->sparse != SPARSE_NONE && h->sparse != SPARSE_FILL;
    i->cosine_scale = h->cosines.scale;
    i->cosine_plus = h->cosines.plus;
    i->cosines_each = h->cosines.each;
    i->labels = h->labels;
    i->pairs_as_text = h->asks_yes_no;
}

static void fill_info(struct model *m)
{
    const struct decoder_spec *s = &m->d.spec;
    struct model_info *i = &m->info;
    i->vocab = s->vocab;
    i->rounds = m->d.kv_rounds;
    fill_positions(i, s, m->d.encodes);
    i->dtype = m->d.dtype;
    i->quant = m->d.quant;
    i->weight_bytes = m->d.weights.bytes;
    i->parameters = m->d.weights.elements - m->d.drafts.elements - m->d.copies.elements;
    i->mapped_bytes = packed_mapped(m->d.packed);
    count_work(m);
    i->state_bytes = m->d.state_floats * sizeof(float);
    i->n_layers = s->n_layers;
    i->first_layer = m->d.stage.first;
    i->layers_here = m->d.stage.n;
    i->enqueues = m->d.comm->world == 1 || m->d.comm->enqueues;
    i->hidden = s->hidden;
    i->n_heads = s->n_heads;
    i->n_kv_heads = s->n_kv_heads;
    i->head_dim = s->head_dim;
    i->both_ways = s->both_ways;
    i->attends_text = s->attends_text && !m->d.encodes;
    i->start = s->start;
    fill_head(i, &m->encoder.head);
    i->first_row = m->sentence.colbert ? 1 : 0;
    if (m->d.encodes)
        i->task = m->encoder.head.task;
    i->max_length = m->sentence.max_length;
    const uint32_t bound = m->d.encodes ? i->max_positions : s->max_positions;
    if (!i->max_length || (bound && bound < i->max_length))
        i->max_length = bound;
    i->sight = s->moe.sight_ffn > 0;
    memcpy(i->sight_ids, s->moe.sight_ids, sizeof(i->sight_ids));
    for (uint32_t l = 0; l < s->n_layers; l++)
        if (s->layers[l].window)
            i->window = s->layers[l].window;
    if (m->d.draft.ops)
        i->draft = (struct model_draft){.kind = m->d.draft.ops->name,
                                        .width = m->d.draft.plan.width,
                                        .most = m->d.draft.plan.most,
                                        .keeps = m->d.draft.plan.keeps,
                                        .chains = m->d.draft.plan.chains};
    i->kv_window = m->d.encodes ? 0 : m->d.kv_window_most;
}

/* Scales of a calibrated fp8 cache are not used: every token and head has a scale. */
static void log_kv_scales(const struct checkpoint *c)
{
    static const char suffix[] = ".k_scale";
    for (uint32_t f = 0; f < c->n_files; f++)
        for (uint32_t i = 0; i < c->files[f].n; i++) {
            const char *name = c->files[f].tensors[i].name;
            size_t n = strlen(name);
            if (n < sizeof(suffix) || strcmp(name + n - (sizeof(suffix) - 1), suffix) != 0)
                continue;
            LOG(LOG_INFO,
                "k_scale and v_scale of the checkpoint are not used: 8-bit caches have a "
                "scale for each token and head",
                LOGS("tensor", name));
            return;
        }
}

/* Lists the form of each packed matrix, including those that were widened. */
static void list_matrices(struct model *m, bool keep)
{
    char *out = m->info.matrices;
    size_t n = 0;
    bool widened = false;
    for (int i = 0; i < MATRIX_KINDS && m->d.became[i].name && n < sizeof(m->info.matrices); i++) {
        const struct matrix_count *c = &m->d.became[i];
        widened |= c->widened;
        n += (size_t)snprintf(out + n, sizeof(m->info.matrices) - n, "%s%s%s %u", i ? ", " : "",
                              c->widened ? "widened to " : "", c->name, c->n);
    }
    if (n)
        LOG(keep && widened ? LOG_WARN : LOG_INFO, "packed matrices", LOGS("kept", out));
}

/* Where most products round activations to 8 bits, attention may round to 16. A GGUF file whose
 * tensors are all plain has no such product. */
static bool rounds_attention(const struct model *m)
{
    bool kept = false;
    for (int i = 0; i < MATRIX_KINDS && m->d.became[i].name; i++)
        kept |= !m->d.became[i].widened;
    return m->info.arith == ARITH_INT8 && (m->d.quant || kept);
}

/* Logs the form of packed weights. The tensors of a GGUF file may all be plain numbers. */
static void log_packed(const struct checkpoint *c, const struct stored *how)
{
    const char *packing = c->gguf.n ? gguf_weights_packing(&c->gguf) : how->method;
    if (how->keep && packing)
        LOG(LOG_INFO, "packed weights stay packed", LOGS("packing", packing),
            LOGS("activations", arith_name(how->arith)));
    else if (packing)
        LOG(LOG_INFO, "packed weights are served as numbers", LOGS("packing", packing));
}

/* Combines --quantize and --activations. */
static int choose_arith(struct model *m, const struct model_options *o, struct stored *how,
                        struct err *e)
{
    static const enum arith asked[] = {ARITH_EXACT, ARITH_EXACT, ARITH_HALF, ARITH_INT8};
    const enum activations a = o->activations;
    enum quant *q = &m->d.quant;
    if (*q == QUANT_W8A8 && (a == ACTIVATIONS_EXACT || a == ACTIVATIONS_16))
        *q = QUANT_INT8;
    else if (*q == QUANT_INT8 && a == ACTIVATIONS_8)
        *q = QUANT_W8A8;
    if (*q == QUANT_INT4 && a != ACTIVATIONS_AUTO &&
        m->d.ops->weight_takes(quant_format(*q), asked[a]) != TAKE_NATIVE)
        return err_set(e, ERR_VALIDATION,
                       "--quantize %s rounds activations to 8 bits on this device, and "
                       "--activations %s does not allow it",
                       quant_name(*q), arith_name(asked[a]));
    how->keep = !*q && how->format && (how->varies || how->format->form) &&
                (o->dtype < 0 || how->format == &stored_mxfp4);
    const bool fp8 = how->is_float && how->bits == 8 && !how->varies; /* all matrices are */
    how->arith = *q    ? quant_arith(*q)
                 : fp8 ? format_arith(&formats[FORMAT_FP8], ARITH_INT8)
                       : activations_packed(a, o->dtype);
    m->info.arith = how->keep ? how->arith : quant_arith(*q);
    return 0;
}

/* Finds draft heads in the checkpoint itself, or in a separate folder. */
static int find_heads(struct model *m, const struct arch *a, const char *dir,
                      const struct checkpoint *c, struct checkpoint *apart, struct err *e)
{
    if (!dir)
        return draft_find(&m->d, a, c, false, e);
    return checkpoint_open(apart, dir, NULL, e) ? -1 : draft_find(&m->d, a, apart, true, e);
}

static int load_weights(struct model *m, const char *dir, const struct arch *a,
                        const struct model_options *o, struct err *e)
{
    const int dtype = o->dtype;
    struct checkpoint c;
    struct stored how = {0};
    struct unused unused;
    if ((dir && stored_read(&how, dir, e)) ||
        stored_agree(&how, o->quantize, o->quant, &m->d.quant, e) || choose_arith(m, o, &how, e))
        return -1;
    m->info.stored = how.method ? how.method : "plain";
    m->d.dtype = dtype < 0 ? DT_BF16 : (enum dtype)dtype;
    if (!dir)
        return decoder_load(&m->d, a, NULL, NULL, e) ||
                       (m->d.encodes && model_load_head(m, NULL, a, NULL, o, e))
                   ? -1
                   : 0;
    if (checkpoint_open(&c, dir, a, e))
        return -1;
    m->d.dtype = dtype < 0 ? stored_dtype(&c, a) : (enum dtype)dtype;
    log_kv_scales(&c);
    log_packed(&c, &how);
    struct checkpoint heads = {0};
    int rc = mlx_adapt(&m->d.spec, m->info.type, a, &c, e);
    if (rc == 0 && o->draft_heads && !m->d.encodes && !m->d.stages &&
        find_heads(m, a, o->draft_dir, &c, &heads, e))
        rc = o->draft_dir ? err_wrap(e, "--draft-heads") : -1;
    rc = rc ? rc : decoder_load(&m->d, a, &c, &how, e);
    checkpoint_close(&heads);
    if (rc == 0 && m->d.encodes)
        rc = model_load_head(m, dir, a, &c, o, e);
    if (rc == 0 && m->d.comm->rank == 0) { /* rank 0 adds biases for all ranks */
        rc = unused_check(&c, &unused, e);
        if (rc == 0)
            unused_log(&unused);
    }
    list_matrices(m, how.keep);
    checkpoint_close(&c); /* everything is packed: unmaps the file */
    return rc;
}

/* With rotations that depend on the length, prompts cannot be divided, but states pass from one
 * token to the next. */
static int check_states(const struct model *m, struct err *e)
{
    if (!m->info.state_bytes || !m->info.by_length)
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "a rope scaling by the length of the sequence is not supported with recurrent "
                   "state");
}

/* Refuses or disables what several stages do not support. */
static int check_stages(const struct model *m, const struct model_options *o, struct err *e)
{
    const struct decoder *d = &m->d;
    const char *what = NULL;
    char of_this[64];
    if (!d->stages)
        return 0;
    snprintf(of_this, sizeof(of_this), "embeddings of each layer (%s)", m->info.type);
    if (d->encodes)
        what = "models that give vectors or scores (--task)";
    else if (d->spec.per_layer)
        what = of_this;
    else if (d->spec.shared.blocks)
        what = "blocks that layers share";
    else if (o->draft_dir)
        what = "--draft-heads";
    if (!what)
        return 0;
    return err_set(e, ERR_VALIDATION, "--pipeline-parallel-size %d does not go with %s",
                   d->stages->world, what);
}

/* Whole experts per rank, if requested or needed and if there are some. */
static int split_experts(struct decoder *d, bool asked, struct err *e)
{
    if (!(asked || d->spec.moe.result_eps > 0) || !d->spec.moe.n_experts || d->split.world == 1)
        return 0;
    return split_by_experts(&d->split, &d->spec, e);
}

static int load(struct model *m, const char *dir, const struct model_options *o, struct err *e)
{
    char path[PATH_MAX];
    const struct arch *arch;
    struct decoder *d = &m->d;
    const int64_t start = clock_ns();
    d->ops = o->ops;
    d->dev = o->dev;
    d->comm = o->comm;
    d->stages = o->stages && o->stages->world > 1 ? o->stages : NULL;
    d->sample = o->measure;
    d->progress = o->progress;
    d->progress_arg = o->progress_arg;
    d->busy_ns = o->busy_ns;
    d->packed = o->measure || o->random_config ? NULL : o->packed;
    if (o->comm->world > 1 && d->ops->comm_open && !o->measure) {
        if (!(m->comm = d->ops->comm_open(d->dev, o->comm, e)))
            return -1;
        d->comm = m->comm;
    }
    if (snprintf(path, sizeof(path), "%s/config.json", dir) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    if (o->random_config)
        dir = NULL;
    if (arch_configure(path, o->random_config, o->rope_scaling, o->rope_factor, &arch,
                       &m->info.type, &d->spec, e))
        return -1;
    if (dir && d->spec.static_rows && static_rows_sizes(dir, &d->spec.vocab, &d->spec.hidden, e))
        return -1;
    if (split_make(&d->split, &d->spec, o->comm->rank, o->comm->world, e) ||
        split_experts(d, o->expert_parallel, e) || model_check_ops(d, e) ||
        model_choose_task(m, dir, o, e) || check_stages(m, o, e) ||
        load_weights(m, dir, arch, o, e) || load_eos(m, dir, e))
        return -1;
    d->kv_rounds = rounds_attention(m);
    fill_info(m);
    if (check_states(m, e))
        return -1;
    if (o->n_adapters || o->extra_adapters) {
        if (spec_repeats(&d->spec) || d->spec.apart.buckets || d->spec.attends_text ||
            d->spec.paired) /* layers of adapters' files have other numbers */
            return err_set(e, ERR_VALIDATION, "adapters of %s models are not supported",
                           m->info.type);
        const struct visual_form *v = d->encodes ? m->sentence.late.visual : NULL;
        const struct text_head *h = &m->encoder.head;
        const struct lora_base base = {
            arch, &d->spec, &d->split, {v ? v->matrix : NULL, d->spec.hidden, h->row_width}};
        if (!(d->adapters = adapters_open(o->adapters, o->n_adapters, o->extra_adapters, &base,
                                          d->ops, d->dev, e)))
            return -1;
    }
    LOG(o->measure ? LOG_DEBUG : LOG_INFO, "weights loaded",
        LOGD("seconds", (double)(clock_ns() - start) * 1e-9), LOGS("model_type", m->info.type),
        LOGS("dtype", dtype_name(d->dtype)), LOGS("stored", m->info.stored),
        LOGS("quantize", quant_name(d->quant)), LOGI("bytes", d->weights.bytes));
    return 0;
}

struct model *model_load(const char *dir, const struct model_options *o, struct err *e)
{
    struct model *m = calloc(1, sizeof(*m));
    if (!m) {
        err_nomem(e);
        return NULL;
    }
    if (load(m, dir, o, e)) {
        model_free(m);
        return NULL;
    }
    return m;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    /* first: what waits for ranks that have ended would let no memory be freed */
    comm_close(m->d.link);
    comm_close(m->comm);
    model_swap_free(m);
    adapters_close(m->d.adapters);
    encoder_free(&m->encoder);
    sentence_free(&m->sentence);
    decoder_free(&m->d);
    free(m->eos);
    free(m);
}

const struct model_info *model_info(const struct model *m) { return &m->info; }
struct adapters *model_adapters(struct model *m) { return m->d.adapters; }
const struct decoder *model_decoder(const struct model *m) { return &m->d; }

/* ---------------------------------------------------------------- steps */

static int no_text(const struct model *m, struct err *e)
{
    return err_set(e, ERR_VALIDATION, "this %s model is served for `%s`: it generates no text",
                   m->info.type, model_task_name(m->info.task));
}

int model_forward(struct model *m, const struct ragged *b, float *logits, struct err *e)
{
    const int rc = m->d.encodes ? no_text(m, e) : decoder_forward(&m->d, b, logits, e);
    m->d.capture = NULL;
    return rc;
}

int model_encode(struct model *m, const struct model_text *texts, uint32_t n, bool all, float *out,
                 struct err *e)
{
    return encoder_run(&m->encoder, texts, n, all, out, e);
}

int model_check_text(const struct model *m, const struct model_text *t, struct err *e)
{
    return encoder_check(&m->encoder, t, e);
}

int model_encode_reserve(struct model *m, uint32_t tokens, uint32_t texts, enum kv_dtype kv_dtype,
                         struct err *e)
{
    m->encoder.kv_dtype = kv_dtype;
    return encoder_reserve(&m->encoder, tokens, texts, e) ||
                   decoder_reserve(&m->d, tokens, texts, e)
               ? -1
               : 0;
}

int model_draw(struct model *m, const struct ragged *b, const struct draw *v, int set,
               struct err *e)
{
    const int rc = m->d.encodes ? no_text(m, e) : decoder_draw(&m->d, b, v, set, e);
    m->d.capture = NULL;
    return rc;
}

void model_capture(struct model *m, float *rows) { m->d.capture = m->d.draft.ops ? rows : NULL; }

int model_draft(struct model *m, const struct draft_step *x, struct err *e)
{
    return decoder_draft(&m->d, x, e);
}

int model_reserve(struct model *m, uint32_t max_tokens, uint32_t max_out, struct err *e)
{
    return decoder_reserve(&m->d, max_tokens, max_out, e);
}

/* One long chunk and a token of each other sequence, all of maximum length. */
static int rehearse(struct model *m, uint32_t tokens, uint32_t rows, uint32_t longest,
                    const uint32_t *zeros, struct err *e)
{
    struct span *spans = calloc(rows, sizeof(*spans));
    uint32_t *out_rows = calloc(rows, sizeof(*out_rows));
    for (uint32_t i = 0; spans && out_rows && i < rows; i++) {
        uint32_t chunk = tokens - (rows - 1), first = i ? chunk + i - 1 : 0;
        spans[i] = (struct span){first, i ? 1 : chunk, longest > chunk ? longest : chunk, zeros,
                                 .windows = zeros};
        out_rows[i] = first + spans[i].n - 1;
    }
    const struct ragged b = {tokens, rows,     rows,
                             zeros,  zeros,    zeros,
                             spans,  out_rows, .window_slots = m->d.windows ? zeros : NULL};
    int rc = spans && out_rows ? decoder_rehearse(&m->d, &b, e) : err_nomem(e);
    free(spans), free(out_rows);
    return rc;
}

int model_rehearse(struct model *m, uint32_t tokens, uint32_t rows, uint32_t longest,
                   uint32_t block_size, enum kv_dtype kv_dtype, bool windows, struct err *e)
{
    uint32_t most = longest > tokens ? longest : tokens;
    if (!m->d.ops->step_rehearse)
        return 0;
    uint32_t *zeros = calloc(most, sizeof(*zeros)); /* ids, positions, slots, blocks */
    int rc = zeros ? model_kv_resize_apart(m, 1, windows, block_size, kv_dtype, e) : err_nomem(e);
    rc = rc ? rc : model_state_resize(m, 1, e);
    if (rc == 0)
        rc = rehearse(m, tokens, rows < tokens ? rows : tokens, longest, zeros, e);
    free(zeros);
    return rc;
}

uint64_t model_scratch_bytes(const struct model *m, uint32_t max_tokens, uint32_t max_out)
{
    return decoder_scratch_bytes(&m->d, max_tokens, max_out);
}

uint64_t model_scratch_held(const struct model *m)
{
    return decoder_scratch_bytes(&m->d, m->d.scratch.max_tokens, m->d.scratch.max_out);
}
