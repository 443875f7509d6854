/* embed_list.c - listwise reranking: prompts of jina-reranker-v3 (arXiv 2509.25085), each with a
 * query and documents. A mark follows each of them; the vectors of the marks are compared. */
#include "router/call/embed_impl.h"
#include <math.h>
#include <string.h>

/* The authors' limits, in tokens and documents of a prompt. */
enum { MOST_QUERY = 512, MOST_DOCUMENT = 2048, MOST_DOCUMENTS = 125 };
static const char document_mark[] = "<|embed_token|>", query_mark[] = "<|rerank_token|>";
static const char before[] =
    "<|im_start|>system\n"
    "You are a search relevance expert who can determine a ranking of the passages based on how "
    "relevant they are to the query. If the query is a question, how relevant a passage is depends "
    "on how well it answers the question. If not, try to analyze the intent of the query and "
    "assess how well each passage satisfies the intent. If an instruction is provided, you should "
    "follow the instruction when determining the ranking.<|im_end|>\n"
    "<|im_start|>user\n"
    "I will provide you with %u passages, each indicated by a numerical identifier. Rank the "
    "passages based on their relevance to query: ";
static const char after[] = "\n</query><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

/* ---------------------------------------------------------------- the prompt */

/* A text without marks. */
static void add(struct buf *out, const struct text_input *t)
{
    static const char *const marks[] = {document_mark, query_mark};
    for (const char *p = t->text, *end = p + t->n; p < end;) {
        size_t skip = 0;
        for (int i = 0; i < 2 && !skip; i++)
            skip = strncmp(p, marks[i], strlen(marks[i])) == 0 ? strlen(marks[i]) : 0;
        if (!skip)
            buf_ch(out, *p);
        p += skip ? skip : 1;
    }
}

static void write_prompt(struct buf *out, const struct text_list *l, const char *instruction)
{
    buf_fmt(out, before, l->n);
    add(out, &l->query);
    buf_ch(out, '\n');
    if (instruction)
        buf_fmt(out, "<instruct>\n%s\n</instruct>\n", instruction);
    for (uint32_t i = 0; i < l->n; i++) {
        buf_fmt(out, "<passage id=\"%u\">\n", i);
        add(out, &l->documents[i]);
        buf_fmt(out, "%s\n</passage>\n", document_mark);
    }
    buf_str(out, "<query>\n");
    add(out, &l->query);
    buf_str(out, query_mark);
    buf_str(out, after);
}

/* The places of the marks, that of the query last. */
static int find_marks(const struct encoding *x, const struct text_list *l, struct embed_text *t)
{
    const struct tokenizer *k = x->c->edge->tokenizer;
    const int64_t document = tokenizer_id(k, document_mark), query = tokenizer_id(k, query_mark);
    uint32_t *rows = ARENA_NEW(&x->c->arena, uint32_t, l->n + (size_t)1), n = 0;
    bool right = document >= 0 && query >= 0;
    if (!rows)
        return err_nomem(x->e);
    for (uint32_t i = 0; right && i < t->n; i++) {
        if (t->ids[i] != document && t->ids[i] != query)
            continue;
        right = n <= l->n && t->ids[i] == (n < l->n ? document : query);
        if (right)
            rows[n++] = i;
    }
    t->rows = rows;
    t->n_rows = n;
    return right && n == l->n + 1
               ? 0
               : err_set(x->e, ERR_VALIDATION, "the tokenizer has not the marks of a ranking");
}

int embed_list(const struct encoding *x, const struct text_list *in, struct embed_text *out)
{
    struct buf text = BUF_INIT;
    struct tok_part a;
    write_prompt(&text, in, x->q->instruction);
    int rc = text.oom ? err_nomem(x->e) : embed_ids(x, text.p, text.len, 0, &a);
    buf_free(&text);
    if (rc == 0 && x->most && a.n > x->most)
        rc = err_set(x->e, ERR_TOO_LONG,
                     "a ranking of %u tokens: at most %u are allowed. Send shorter documents", a.n,
                     x->most);
    if (rc)
        return -1;
    *out = (struct embed_text){.ids = a.id, .n = a.n};
    return find_marks(x, in, out);
}

/* ---------------------------------------------------------------- lists */

/* A text cut to its limit. Returns its tokens and its mark; 0: an error. */
static uint32_t cut(const struct encoding *x, struct text_input *t, uint32_t most)
{
    struct tok_part a;
    struct buf text = BUF_INIT;
    if (embed_ids(x, t->text, t->n, 0, &a))
        return 0;
    if (a.n <= most)
        return a.n + 1;
    tokenizer_decode(x->c->edge->tokenizer, a.id, most, false, &text);
    t->text = text.oom ? NULL : arena_strdup(&x->c->arena, text.p ? text.p : "", text.len);
    t->n = text.len;
    buf_free(&text);
    if (!t->text)
        return err_nomem(x->e), 0;
    return most + 1;
}

int texts_ask_lists(struct call *c, struct texts_ask *ask, const struct text_input *in,
                    uint32_t n_first, struct err *e)
{
    const struct encoding x = {.c = c, .q = ask, .e = e};
    const uint32_t n = ask->n - n_first, limit = edge_limits(c->edge)->max_input_tokens;
    const uint32_t most = ask->most && ask->most < MOST_DOCUMENT ? ask->most : MOST_DOCUMENT;
    struct text_input *texts = ARENA_NEW(&c->arena, struct text_input, ask->n + (size_t)1);
    struct text_input *lists = ARENA_NEW(&c->arena, struct text_input, n + (size_t)1);
    struct text_list *l = ARENA_NEW(&c->arena, struct text_list, n + (size_t)1), *now = NULL;
    uint64_t used = 0, query = 0;
    if (!texts || !lists || !l)
        return err_nomem(e);
    memcpy(texts, in, ask->n * sizeof(*texts));
    ask->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool own = n_first > 1;
        struct text_input *q = &texts[own ? i : 0], *d = &texts[n_first + i];
        if ((own || !i) && !(query = cut(&x, q, MOST_QUERY)))
            return -1;
        const uint32_t tokens = cut(&x, d, most);
        if (!tokens)
            return -1;
        /* A list ends where the longest document might not fit, as in the authors' code. */
        const bool full = now && limit && used + 2 * query + most >= limit;
        if (own || !now || full || now->n == MOST_DOCUMENTS) {
            now = &l[ask->n];
            *now = (struct text_list){.query = *q, .documents = d};
            lists[ask->n++] = (struct text_input){.list = now};
            used = 0;
        }
        now->n++;
        used += tokens;
    }
    ask->in = lists;
    return 0;
}

/* ---------------------------------------------------------------- scores */

static float cosine(const float *a, const float *b, uint32_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? (float)(ab / sqrt(aa * bb)) : 0;
}

/* The query's vector is the mean of those of its lists, each weighted by its best document. */
static const float *mean_query(struct call *c)
{
    const struct embed_job *j = &c->texts->job;
    float *mean = ARENA_NEW(&c->arena, float, j->width), *rows = j->values, sum = 0;
    for (uint32_t k = 0; mean && k < j->width; k++)
        mean[k] = 0;
    for (uint32_t i = 0; mean && i < j->n; rows += (size_t)j->texts[i++].n_rows * j->width) {
        const uint32_t n = j->texts[i].n_rows - 1;
        const float *query = rows + (size_t)n * j->width;
        float weight = 0;
        for (uint32_t k = 0; k < n; k++)
            weight = fmaxf(weight, (1 + cosine(query, rows + (size_t)k * j->width, j->width)) / 2);
        for (uint32_t k = 0; k < j->width; k++)
            mean[k] += weight * query[k];
        sum += weight;
    }
    for (uint32_t k = 0; mean && sum > 0 && k < j->width; k++)
        mean[k] /= sum;
    return mean;
}

float *texts_list_scores(struct call *c, uint32_t n_first, uint32_t n)
{
    const struct embed_job *j = &c->texts->job;
    const float *mean = n_first == 1 ? mean_query(c) : NULL, *rows = j->values;
    float *score = ARENA_NEW(&c->arena, float, n + (size_t)1);
    if (!score || (n_first == 1 && !mean))
        return NULL;
    for (uint32_t i = 0, at = 0; i < j->n; rows += (size_t)j->texts[i++].n_rows * j->width) {
        const uint32_t some = j->texts[i].n_rows - 1;
        const float *query = mean ? mean : rows + (size_t)some * j->width;
        for (uint32_t k = 0; k < some && at < n; k++)
            score[at++] = cosine(query, rows + (size_t)k * j->width, j->width);
    }
    return score;
}
