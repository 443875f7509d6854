/* model_head.c - what makes vectors and scores of a model's rows: its head, with the ids of tokens
 * that the head names by words, and the encoder beside a decoder that classifies. */
#include "common/model/pair_form.h"
#include "model-server/model/model_impl.h"
#include <stdio.h>

/* Which tokens answer a reranker's question: those of its own files, or of its family. */
static void set_answers(const struct model *m, const struct model_options *o,
                        struct text_head_options *h)
{
    const struct pair_form *f = pair_form_of(m->info.type, false);
    const int64_t yes = o->id_of ? o->id_of(o->vocabulary, f->yes) : -1;
    const int64_t no = o->id_of && f->no ? o->id_of(o->vocabulary, f->no) : -1;
    h->yes = m->sentence.scores ? m->sentence.true_token : yes >= 0 ? (uint32_t)yes : UINT32_MAX;
    h->no = m->sentence.scores ? m->sentence.false_token : no >= 0 ? (uint32_t)no : UINT32_MAX;
    h->yes_alone = m->sentence.scores ? h->no == UINT32_MAX : !f->no;
}

/* Lexical weights leave out the tokens of XLM-RoBERTa that stand for no word. */
static void set_special(const struct model_options *o, struct text_head_options *h)
{
    static const char *const words[TEXT_HEAD_SPECIAL] = {"<s>", "</s>", "<pad>", "<unk>"};
    for (int i = 0; i < TEXT_HEAD_SPECIAL; i++) {
        const int64_t id = o->id_of ? o->id_of(o->vocabulary, words[i]) : -1;
        if (id >= 0)
            h->special[h->n_special++] = (uint32_t)id;
    }
}

int model_load_head(struct model *m, const char *dir, const struct arch *a,
                    const struct checkpoint *c, const struct model_options *o, struct err *e)
{
    char head[TENSOR_NAME_CAP], embed[TENSOR_NAME_CAP];
    snprintf(head, sizeof(head), "%s.weight", a->names[W_HEAD] ? a->names[W_HEAD] : "");
    snprintf(embed, sizeof(embed), "%s.weight", a->names[W_EMBED]);
    m->encoder.d = &m->d;
    struct text_head_options h = {.dir = dir,
                                  .sentence = &m->sentence,
                                  .c = c,
                                  .arch = a,
                                  .task = m->info.task,
                                  .hidden = m->d.spec.hidden,
                                  .vocab = m->d.spec.vocab,
                                  .n_layers = m->d.spec.n_layers,
                                  .both_ways = m->d.spec.both_ways,
                                  .lm_head = head,
                                  .embed = embed,
                                  .vector = a->names[W_VECTOR]};
    set_answers(m, o, &h);
    set_special(o, &h);
    if (text_head_load(&m->encoder.head, &h, e))
        return -1;
    return m->d.spec.attends_text ? encode_source_load(&m->encoder.source, dir, &m->d, e) : 0;
}
