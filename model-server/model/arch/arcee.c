/* Arcee AFM, and the text model of Cosmos 3 Edge: Llama with an ungated MLP and squared ReLU. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include <string.h>

/* Coordinates of an image always alternate in Cosmos 3's rotation; its files need not say so. */
static void alternate(struct config *c)
{
    static const int sections[] = {24, 20, 20};
    cJSON *p = cJSON_GetObjectItemCaseSensitive(c->root, "rope_parameters");
    if (!p || cJSON_IsNull(p)) {
        cJSON_DeleteItemFromObjectCaseSensitive(c->root, "rope_parameters");
        p = cJSON_AddObjectToObject(c->root, "rope_parameters");
        cJSON_AddItemToObject(p, "mrope_section", cJSON_CreateIntArray(sections, 3));
    }
    cJSON_DeleteItemFromObjectCaseSensitive(p, "mrope_interleaved");
    if (!p || (cJSON_IsObject(p) && !cJSON_AddTrueToObject(p, "mrope_interleaved")))
        config_fail(c, "out of memory");
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const bool edge = strcmp(json_str(c->root, "model_type", ""), "cosmos3_edge_text") == 0;
    if (edge)
        alternate(c);
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = edge ? 128 : 0,
                                             .max_positions = edge ? 131072 : 4096,
                                             .norm_eps = 1e-5,
                                             .rope_theta = edge ? 1e8 : 10000});
    s->act = config_act(c, "hidden_act", "relu2");
    s->mlp = MLP_PLAIN;
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
}

const struct arch arch_arcee = {
    .types = (const char *const[]){"arcee", "cosmos3_edge_text", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA_OUTER,
              NAMES_COSMOS_ATTENTION, [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",
              [W_UP] = "model.layers.*.mlp.fc1|model.layers.*.mlp.up_proj",
              [W_DOWN] = "model.layers.*.mlp.fc2|model.layers.*.mlp.down_proj"},
    .configure = configure,
};
