/* Florence-2 (arXiv 2311.06242): the image as a square. An encoder reads its tokens, <s>, the text
 * and </s>; a task's token stands for a sentence. */
#include "common/json/json.h"
#include "common/vision/settings.h"
#include <string.h>

/* What a task's token stands for: a whole prompt, or with %s its place in it. */
static const struct task {
    const char *word, *prompt;
} tasks[] = {
    {"<OCR>", "What is the text in the image?"},
    {"<OCR_WITH_REGION>", "What is the text in the image, with regions?"},
    {"<CAPTION>", "What does the image describe?"},
    {"<DETAILED_CAPTION>", "Describe in detail what is shown in the image."},
    {"<MORE_DETAILED_CAPTION>", "Describe with a paragraph what is shown in the image."},
    {"<OD>", "Locate the objects with category name in the image."},
    {"<DENSE_REGION_CAPTION>", "Locate the objects in the image, with their descriptions."},
    {"<REGION_PROPOSAL>", "Locate the region proposals in the image."},
    {"<CAPTION_TO_PHRASE_GROUNDING>", "Locate the phrases in the caption: %"},
    {"<REFERRING_EXPRESSION_SEGMENTATION>", "Locate % in the image with mask"},
    {"<REGION_TO_SEGMENTATION>", "What is the polygon mask of region %"},
    {"<OPEN_VOCABULARY_DETECTION>", "Locate % in the image."},
    {"<REGION_TO_CATEGORY>", "What is the region %?"},
    {"<REGION_TO_DESCRIPTION>", "What does the region % describe?"},
    {"<REGION_TO_OCR>", "What text is in the region %?"},
};
enum { N_TASKS = sizeof(tasks) / sizeof(tasks[0]) };

static void load(struct vision *v, struct vision_settings *s)
{
    static const struct vision_pixel_defaults clip = {VISION_BICUBIC, vision_clip_mean,
                                                      vision_clip_std, 0},
                                              published = {VISION_BICUBIC, vision_imagenet_mean,
                                                           vision_imagenet_std, 0};
    struct vision_florence2 *f = &v->florence2;
    vision_read_format(s, &v->format, vision_defaults(s, &clip, &published));
    f->side = vision_side(s, &s->pixels, "size", 768);
    if (f->side > 768) /* the tower's memory is reserved for this size */
        vision_settings_fail(s, "%s: size must be at most 768", s->pixels.name);
    f->tokens = vision_u32(s, &s->pixels, "image_seq_length", 577, 1, 1 << 14);
    if (vision_flag(&s->pixels, "do_center_crop", false))
        vision_settings_fail(s, "%s: do_center_crop must be false", s->pixels.name);
    v->token = vision_read_token(s, "image_token_id", "<image>", 51289, v->marker);
    vision_read_token(s, NULL, "<s>", 0, f->bos);
    vision_read_token(s, NULL, "</s>", 2, f->eos);
}

static int plan(const struct vision *v, struct vision_plan *out, struct err *e)
{
    const uint32_t side = v->florence2.side;
    (void)e;
    out->crop_width = out->crop_height = side;
    vision_add_crop(out, vision_add_resize(out, -1, vision_whole(out), side, side), 0, 0);
    out->n_features = v->florence2.tokens;
    return 0;
}

static struct vision_frame frame(const struct vision *v)
{
    return (struct vision_frame){v->florence2.bos, v->florence2.eos, true, true};
}

/* The text without every `word`, and without space at its ends. */
static void add_input(const char *text, size_t n, const char *word, struct buf *out)
{
    const size_t len = strlen(word), first = out->len;
    for (size_t i = 0; i < n; i++) {
        if (n - i >= len && memcmp(text + i, word, len) == 0)
            i += len - 1;
        else if (out->len > first || !strchr(" \t\r\n\v\f", text[i]))
            buf_ch(out, text[i]);
    }
    while (out->len > first && strchr(" \t\r\n\v\f", out->p[out->len - 1]))
        out->len--;
}

/* As in transformers, the first task of the list that the text has. */
static int text(const struct vision *v, const char *text, size_t n, struct buf *out, struct err *e)
{
    (void)v;
    for (int i = 0; i < N_TASKS; i++) {
        const size_t len = strlen(tasks[i].word);
        const char *place = strchr(tasks[i].prompt, '%');
        if (!n || !memmem(text, n, tasks[i].word, len))
            continue;
        if (!place && n != len)
            return err_set(e, ERR_VALIDATION, "%s must be the whole text of a prompt",
                           tasks[i].word);
        buf_add(out, tasks[i].prompt,
                place ? (size_t)(place - tasks[i].prompt) : strlen(tasks[i].prompt));
        if (place) {
            add_input(text, n, tasks[i].word, out);
            buf_str(out, place + 1);
        }
        return 0;
    }
    buf_add(out, text, n);
    return 0;
}

const struct vision_family vision_florence2 = {
    .types = {"florence2"}, .load = load, .plan = plan, .frame = frame, .text = text};
