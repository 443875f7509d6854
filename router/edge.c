#include "router/edge.h"

void edge_open(struct edge *g, struct infer *i)
{
    g->limits = *infer_limits(i);
    atomic_store(&g->infer, i);
}

const char *edge_closed(struct edge *g)
{
    struct infer *i = atomic_load(&g->infer);
    return !i                          ? "the model is being loaded"
           : atomic_load(&g->draining) ? "the server is shutting down"
                                       : NULL;
}

struct validator edge_validator(const struct edge *g)
{
    return (struct validator){
        .tokenizer = g->tokenizer,
        .max_best_of = g->config->max_best_of,
        .max_stop_sequences = g->config->max_stop_sequences,
        .max_top_n_tokens = g->config->max_top_n_tokens,
        .no_constraints = g->config->disable_grammar_support,
        .max_input_tokens = g->limits.max_input_tokens,
        .max_total_tokens = g->limits.max_total_tokens,
        .takes_bias = g->limits.takes_bias,
        .vocab_size =
            g->limits.vocab_size ? g->limits.vocab_size : tokenizer_vocab_size(g->tokenizer),
    };
}
