/* model_task.c - what a model is served for: text, vectors, labels or scores. */
#include "model-server/model/model_impl.h"

/* A sparse vector is made of the logits of a head, which other encoders do not load. */
static int choose_pooling(struct model *m, const struct model_options *o, struct err *e)
{
    const struct decoder_spec *s = &m->d.spec;
    const bool fills = m->info.task == TASK_FILL_MASK;
    if (m->info.task != TASK_EMBED && (!fills || o->pooling))
        return o->pooling
                   ? err_set(e, ERR_VALIDATION, "--pooling %s does not go with --task %s",
                             sentence_pooling_choices[o->pooling], model_task_name(m->info.task))
                   : 0;
    sentence_set_pooling(&m->sentence, o->pooling);
    if (m->sentence.colbert)
        m->info.task = TASK_TOKEN_EMBED;
    m->sentence.sparse = fills ? SPARSE_FILL : m->sentence.sparse;
    m->d.encodes_logits = m->sentence.sparse != SPARSE_NONE && m->sentence.sparse != SPARSE_LEXICAL;
    if (m->d.encodes_logits && !(s->both_ways && s->head_dense))
        return err_set(e, ERR_VALIDATION, "%s of a %s model %s not supported",
                       fills ? "--task fill-mask" : "sparse vectors (splade)", m->info.type,
                       fills ? "is" : "are");
    return 0;
}

/* Layers in which none attends to the tokens that fill a query: text.attended. */
static int fill_queries(struct model *m, struct err *e)
{
    struct decoder_spec *s = &m->d.spec;
    const struct sentence_late *l = &m->sentence.late;
    const bool by_distance = s->alibi.order || s->near.buckets || s->near.of == NEAR_OF_SLOPES ||
                             s->apart.buckets || s->apart.each;
    if (m->info.task != TASK_TOKEN_EMBED || !l->filled || l->attends)
        return 0;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *y = &s->layers[i];
        const char *why = by_distance                          ? "biases by distance"
                          : y->mixer != MIXER_ATTENTION        ? "another kind of attention"
                          : y->window && y->window < l->filled ? "shorter windows"
                                                               : NULL;
        if (why)
            return err_set(e, ERR_VALIDATION,
                           "queries of %u tokens, of which none attends to the last: not of a %s "
                           "model with %s",
                           l->filled, m->info.type, why);
        y->mutual = MUTUAL_ALONE;
    }
    return 0;
}

/* Queries of PaliGemma are a prefix, as its prompts with images are. */
static int see_both_ways(struct model *m, struct err *e)
{
    struct decoder_spec *s = &m->d.spec;
    const struct visual_form *v = m->sentence.late.visual;
    if (m->info.task != TASK_TOKEN_EMBED || !v || !v->both_ways)
        return 0;
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].window)
            return err_set(e, ERR_VALIDATION, "%s of a %s model, which has windows", v->class,
                           m->info.type);
    s->both_ways = s->no_head = true;
    return 0;
}

/* A layerwise reranker's layers behind its head are not loaded. */
static int cut_layers(struct model *m, const struct model_options *o, struct err *e)
{
    struct decoder_spec *s = &m->d.spec;
    const uint32_t first = m->sentence.first_cut, cut = o->cutoff_layer;
    if (!cut)
        return 0;
    if (!first || m->info.task != TASK_RERANK)
        return err_set(e, ERR_VALIDATION,
                       "--cutoff-layer %u: this %s model is no layerwise reranker", cut,
                       m->info.type);
    if (cut < first || cut > s->n_layers)
        return err_set(e, ERR_VALIDATION, "--cutoff-layer %u: this model has scores of %u to %u",
                       cut, first, s->n_layers);
    s->n_layers = cut;
    return 0;
}

int model_choose_task(struct model *m, const char *dir, const struct model_options *o,
                      struct err *e)
{
    const struct decoder_spec *s = &m->d.spec;
    enum model_task task = o->task;
    m->sentence = (struct sentence){.include_prompt = true};
    if (dir && sentence_load(&m->sentence, dir, e))
        return -1;
    if (task == TASK_AUTO && dir && model_task_of(dir, &m->sentence, &task, e))
        return -1;
    if (task == TASK_AUTO || (o->task == TASK_AUTO && task == TASK_GENERATE))
        task = s->no_head ? TASK_EMBED : TASK_GENERATE;
    if (task == TASK_GENERATE && s->no_head)
        return err_set(e, ERR_VALIDATION,
                       "--task generate: a %s model gives vectors or scores, no text",
                       m->info.type);
    const bool twice = s->attends_text && (task == TASK_CLASSIFY || task == TASK_RERANK);
    for (uint32_t i = 0; task != TASK_GENERATE && i < s->n_layers; i++)
        if (!mixer_encodes(s->layers[i].mixer) && !(twice && s->layers[i].mixer == MIXER_CROSS))
            return err_set(e, ERR_VALIDATION,
                           "--task %s: layer %u of this %s model is not of plain attention",
                           model_task_name(task), i, m->info.type);
    if (s->static_rows && !m->sentence.bare)
        return err_set(e, ERR_VALIDATION, "a %s model needs `StaticEmbedding` in modules.json",
                       m->info.type);
    m->info.task = task;
    m->d.encodes = task != TASK_GENERATE;
    return cut_layers(m, o, e) || fill_queries(m, e) || see_both_ways(m, e)
               ? -1
               : choose_pooling(m, o, e);
}
