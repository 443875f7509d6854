/* Baichuan and Baichuan 2 (arXiv 2309.10305): Llama with q, k and v in one matrix. The 13B models
 * use ALiBi; the head of Baichuan 2 has normalised rows. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

enum { VOCAB_2 = 125696 }; /* of Baichuan 2, which no key of the file names */

static void configure(struct config *c, struct decoder_spec *s)
{
    /* The files of 7B have this key; those of 13B have `model_max_length` alone. */
    const bool rotates = json_get(c->root, "max_position_embeddings") != NULL;
    config_decoder(c, s,
                   &(struct config_defaults){
                       .norm_eps = 1e-6, .rope_theta = rotates ? 10000 : 0, .vocab = 64000});
    s->act = config_act(c, "hidden_act", "silu");
    s->n_kv_heads = s->n_heads;
    s->qkv = QKV_STACKED;
    s->unit_head = s->vocab >= VOCAB_2;
    if (s->unit_head)
        config_only(c, "tie_word_embeddings", false);
    if (rotates)
        return;
    s->max_positions = config_u32_or(c, "model_max_length", 4096, 1, 1u << 30);
    s->alibi = (struct alibi_spec){ALIBI_PAPER, 8};
}

const struct arch arch_baichuan = {
    .types = (const char *const[]){"baichuan", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA, [W_QKV] = "model.layers.*.self_attn.W_pack"},
    .configure = configure,
};
