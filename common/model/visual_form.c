#include "common/model/visual_form.h"
#include <stddef.h>
#include <string.h>

/* The words are those of the models' authors. */
#define DESCRIBE "Describe the image."
#define QWEN_PAGE                                                                                  \
    "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>" DESCRIBE                       \
    "<|im_end|><|endoftext|>"
#define IDEFICS_PAGE(start) start "User:<image>" DESCRIBE "<end_of_utterance>\nAssistant:"
#define ENGINE_QWEN(name)                                                                          \
    {                                                                                              \
        .class = name, .query = "", .page = QWEN_PAGE, .filler = "<|endoftext|>", .end = "",       \
        .matrix = "custom_text_proj"                                                               \
    }

static const struct visual_form forms[] = {
    /* transformers */
    {.class = "ColPaliForRetrieval",
     .query = "Question: ",
     .page = DESCRIBE,
     .end = "\n",
     .matrix = "embedding_proj_layer",
     .configured = true,
     .bare = true,
     .both_ways = true},
    {.class = "ColQwen2ForRetrieval",
     .query = "Query: ",
     .page = QWEN_PAGE,
     .end = "\n",
     .matrix = "embedding_proj_layer",
     .configured = true},
    {.class = "ColModernVBertForRetrieval",
     .query = "",
     .page = IDEFICS_PAGE("<|begin_of_text|>"),
     .filler = "<end_of_utterance>",
     .end = "",
     .matrix = "embedding_proj_layer",
     .configured = true},
    /* colpali-engine; PaliGemma's processor adds a second <bos> to the page's */
    {.class = "ColPali",
     .query = "",
     .page = "<image><bos>" DESCRIBE,
     .end = "",
     .matrix = "custom_text_proj",
     .bare = true,
     .both_ways = true},
    ENGINE_QWEN("ColQwen2"),
    ENGINE_QWEN("ColQwen2_5"),
    ENGINE_QWEN("ColQwen3"),
    ENGINE_QWEN("ColQwen3_5"),
    {.class = "ColIdefics3",
     .query = "",
     .page = IDEFICS_PAGE("<|im_start|>"),
     .filler = "<end_of_utterance>",
     .end = "",
     .matrix = "linear"},
    {.class = "ColModernVBert",
     .query = "",
     .page = IDEFICS_PAGE("<|begin_of_text|>"),
     .filler = "<end_of_utterance>",
     .end = "",
     .matrix = "custom_text_proj"},
    {.class = "ColGemma3"},
    {.class = "ColQwen2_5Omni"},
};

const struct visual_form *visual_form_of(const char *class)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (strcmp(forms[i].class, class) == 0)
            return &forms[i];
    return NULL;
}
