/* The tensors of a projector (mmproj) under the names of a vision tower. */
#include "common/gguf/projector.h"
#include "model-server/model/checkpoint/gguf_weights_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 128 };

/* What the converter did to a tensor, and what our name lacks. */
enum {
    WHOLE = 1,      /* the tower's name has no suffix */
    PLUS_ONE = 2,   /* 1 was added */
    LEVELS = 4,     /* * is a layer; the tower's counts the layers that have it */
    PLAIN = 8,      /* only of projectors whose positions have no suffix */
    NOT_PLAIN = 16, /* only of the others */
    AFTER_0 = 32,   /* only of projectors whose first matrix is mm.0 */
};

/* llama.cpp's names (gguf-py/gguf/constants.py). If several roles have one name, it belongs to the
 * first one that the tower has. */
static const struct tower_name {
    const char *name;
    enum role role;
    unsigned how;
} names[] = {
    {"v.class_embd", W_CLASS_TOKEN, WHOLE},
    {"v.patch_embd", W_PATCH, 0},
    {"v.position_embd", W_PATCH_POSITIONS, WHOLE | PLAIN},
    {"v.position_embd", W_PATCH_POSITIONS, NOT_PLAIN},
    {"v.std_bias", W_POOL_BIAS, WHOLE},
    {"v.std_scale", W_POOL_SCALE, WHOLE},
    {"v.pre_ln", W_EMBED_NORM, 0},
    {"v.norm_embd", W_PATCH_NORM, 0},    /* GLM */
    {"v.patch_norm.1", W_PIXEL_NORM, 0}, /* the unified Gemma 4 */
    {"v.patch_norm.2", W_PATCH_NORM, 0},
    {"v.patch_norm.3", W_EMBED_NORM, 0},
    {"v.post_ln", W_FINAL_NORM, 0},
    {"v.post_ln", W_PROJECT_NORM, 0},
    {"v.blk.*.ln1", W_ATTN_NORM, 0},
    {"v.blk.*.ln2", W_MLP_NORM, 0},
    {"v.blk.*.attn_post_norm", W_POST_ATTN_NORM, 0},
    {"v.blk.*.attn_post_norm", W_MLP_NORM, 0}, /* Llama 4 */
    {"v.blk.*.ffn_post_norm", W_POST_MLP_NORM, 0},
    {"v.blk.*.attn_qkv", W_QKV, 0},
    {"v.blk.*.attn_q", W_Q, 0},
    {"v.blk.*.attn_k", W_K, 0},
    {"v.blk.*.attn_v", W_V, 0},
    {"v.blk.*.attn_out", W_O, 0},
    {"v.blk.*.attn_q_norm", W_Q_NORM, 0},
    {"v.blk.*.attn_k_norm", W_K_NORM, 0},
    {"v.blk.*.ls1", W_ATTN_SCALE, WHOLE},
    {"v.blk.*.ls2", W_MLP_SCALE, WHOLE},
    {"v.blk.*.ffn_gate", W_GATE, 0},
    {"v.blk.*.ffn_up", W_UP, 0},
    {"v.blk.*.ffn_down", W_DOWN, 0},
    {"v.deepstack.*.norm", W_LEVEL_NORM, LEVELS},
    {"v.deepstack.*.fc1", W_LEVEL_IN, LEVELS},
    {"v.deepstack.*.fc2", W_LEVEL_OUT, LEVELS},
    {"mm.input_norm", W_PROJECT_NORM, 0},
    {"mm.soft_emb_norm", W_PROJECT_NORM, PLUS_ONE},
    {"mm.input_projection", W_PROJECT_OUT, PLAIN}, /* Gemma 4 */
    {"mm.input_projection", W_PROJECT_OUT, WHOLE | NOT_PLAIN},
    {"mm.patch_merger", W_PROJECT_JOINED, 0},
    {"mm.0", W_PROJECT_IN, 0},
    {"mm.1", W_PROJECT_OUT, AFTER_0},
    {"mm.1", W_PROJECT_IN, 0},
    {"mm.2", W_PROJECT_OUT, 0},
    {"mm.model.fc", W_PROJECT_MIDDLE, 0}, /* GLM */
    {"mm.model.fc", W_PROJECT_OUT, 0},
    {"mm.post_norm", W_MIDDLE_NORM, 0},
    {"mm.gate", W_PROJECT_GATE, 0},
    {"mm.up", W_PROJECT_IN, 0},
    {"mm.down", W_PROJECT_OUT, 0},
    {"v.image_newline", W_ROW_END, WHOLE},
    {"model.image_newline", W_ROW_END, WHOLE},
    {"mm.model.mlp.0", W_PROJECT_NORM, 0},
    {"mm.model.mlp.1", W_PROJECT_JOINED, 0}, /* Llama 4 */
    {"mm.model.mlp.2", W_PROJECT_IN, 0},
    {"mm.model.mlp.1", W_PROJECT_IN, 0},
    {"mm.model.mlp.3", W_PROJECT_OUT, 0},
};

/* Bounds of what a matrix takes and gives (Gemma 4), behind the matrix's name. */
static const char *const bounds[] = {".input_min", ".input_max", ".output_min", ".output_max"};
static const struct tower_name clips[] = {
    {"v.blk.*.attn_q", W_CLIP_Q, 0},      {"v.blk.*.attn_k", W_CLIP_K, 0},
    {"v.blk.*.attn_v", W_CLIP_V, 0},      {"v.blk.*.attn_out", W_CLIP_O, 0},
    {"v.blk.*.ffn_gate", W_CLIP_GATE, 0}, {"v.blk.*.ffn_up", W_CLIP_UP, 0},
    {"v.blk.*.ffn_down", W_CLIP_DOWN, 0},
};

/* Beginnings of what a tower does not need: sound, rows of the text model's embeddings, SigLIP's
 * head. */
static const char *const unused[] = {"a.", "mm.a.", "v.token_embd.", "v.head."};

struct tower_source {
    const struct gguf *file;
    const struct arch *a;
    struct gguf_family order; /* how q and k are stored */
    struct gguf_shape shape;
    struct projector_layout layout;
    bool swapped;    /* older converters stored the MLP's matrices under each other's names */
    unsigned not_of; /* tower_name.how: rows that are not of this file */
};

static uint32_t count(const struct gguf *g, const char *key)
{
    double v = 0;
    return gguf_number(g, key, &v) && v >= 1 && v <= 1 << 20 ? (uint32_t)v : 0;
}

static struct tower_source source(const struct gguf *g, const struct arch *a)
{
    const uint32_t hidden = count(g, "clip.vision.embedding_length");
    const uint32_t heads = count(g, "clip.vision.attention.head_count");
    const struct gguf_tensor *down = gguf_tensor(g, "v.blk.0.ffn_down.weight");
    struct tower_source s = {.file = g, .a = a, .layout = gguf_projector_layout(g)};
    s.order.paired = s.layout.paired;
    s.not_of = (s.layout.plain ? NOT_PLAIN : PLAIN) |
               (gguf_tensor(g, "mm.0.weight") ? 0U : (unsigned)AFTER_0);
    s.shape.heads = s.shape.kv_heads = heads;
    s.shape.head = heads ? hidden / heads : 0;
    s.swapped = down && hidden && down->dims[0] == hidden && down->dims[1] != hidden;
    return s;
}

/* ---------------------------------------------------------------- names */

/* The number of layers before `layer` that have results of their own. */
static int level_of(const struct gguf *g, int layer)
{
    const struct gguf_value *list = gguf_numbers(g, "clip.vision.is_deepstack_layers");
    int n = 0;
    for (uint64_t i = 0; list && i < list->n && i < (uint64_t)layer; i++)
        n += gguf_number_at(list, i) != 0;
    return n;
}

static enum role unswapped(const struct tower_source *s, enum role r)
{
    if (!s->swapped || (r != W_UP && r != W_DOWN))
        return r;
    return r == W_UP ? W_DOWN : W_UP;
}

/* NULL: the tower does not use the name of n bytes. */
static const struct tower_name *find(const struct tower_source *s, const char *name, size_t n,
                                     struct gguf_use *u)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (s->a->names[names[i].role] && !(names[i].how & s->not_of) &&
            gguf_name_matches(name, n, names[i].name, &u->layer)) {
            u->role = unswapped(s, names[i].role);
            u->of = s->a;
            if (names[i].how & LEVELS)
                u->layer = level_of(s->file, u->layer);
            return &names[i];
        }
    return NULL;
}

/* The use of a bound, whose suffix is that of the tower's name as well. */
static const struct tower_name *bound_of(const struct tower_source *s, const char *name,
                                         const char *dot, struct gguf_use *u)
{
    const char *suffix = NULL;
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        suffix = strcmp(dot, bounds[i]) == 0 ? bounds[i] : suffix;
    for (size_t i = 0; suffix && i < sizeof(clips) / sizeof(clips[0]); i++)
        if (s->a->names[clips[i].role] &&
            gguf_name_matches(name, (size_t)(dot - name), clips[i].name, &u->layer)) {
            u->role = clips[i].role;
            u->suffix = suffix;
            u->of = s->a;
            return &clips[i];
        }
    return NULL;
}

/* Splits the suffix off. */
static const struct tower_name *use_of(const struct tower_source *s, const char *name,
                                       struct gguf_use *u)
{
    const char *dot = strrchr(name, '.');
    const bool bias = dot && strcmp(dot, ".bias") == 0;
    size_t n = strlen(name);
    if (bias || (dot && strcmp(dot, ".weight") == 0))
        n = (size_t)(dot - name);
    const struct tower_name *row = dot ? bound_of(s, name, dot, u) : NULL;
    if (row)
        return row;
    row = find(s, name, n, u);
    if (row)
        u->suffix = row->how & WHOLE ? "" : bias ? ".bias" : ".weight";
    return row;
}

static bool is_unused(const char *name)
{
    for (size_t i = 0; i < sizeof(unused) / sizeof(unused[0]); i++)
        if (strncmp(name, unused[i], strlen(unused[i])) == 0)
            return true;
    return false;
}

/* ---------------------------------------------------------------- tensors in parts */

static int differs(const struct tower_source *s, const struct gguf_tensor *g, struct err *e)
{
    return err_set(e, ERR_VALIDATION,
                   "%s: tensor `%s` has another shape or type than its neighbour", s->file->path,
                   g->name);
}

/* "v.blk.3.attn_q.weight" with those of k and v, one below the other: a tower's W_QKV. */
static int add_stacked(struct gguf_weights *w, const struct tower_source *s,
                       const struct gguf_tensor *q, int layer, const char *suffix, struct err *e)
{
    const struct gguf_use u = {W_QKV, layer, suffix, s->a};
    const struct gguf_tensor *parts[3] = {q};
    struct tensor t = {.file = s->file->path, .in_memory = true};
    char name[NAME_BYTES];
    gguf_weights_dims(&t, q);
    t.dims[0] = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "v.blk.%d.attn_%c%s", layer, "qkv"[i], suffix);
        const struct gguf_tensor *g = parts[i] = gguf_tensor(s->file, name);
        if (!g || g->packing != q->packing || g->n_dims != q->n_dims ||
            (g->n_dims == 2 && g->dims[0] != q->dims[0]))
            return differs(s, g ? g : q, e);
        t.dims[0] += g->dims[g->n_dims - 1];
        t.bytes += g->bytes;
    }
    uint8_t *all = gguf_weights_own(w, malloc(t.bytes ? t.bytes : 1));
    if (!(t.data = all))
        return err_nomem(e);
    for (int i = 0; i < 3; all += parts[i++]->bytes)
        memcpy(all, parts[i]->data, parts[i]->bytes);
    t.name = gguf_weights_spell(w, s->a, &u, 0);
    return gguf_weights_type(&t, q, e) ? -1 : gguf_weights_add(w, &t, e);
}

/* "v.patch_embd.weight" with ".weight.1": the two frames of a patch, [hidden][3][2][rows][columns],
 * which the file stores apart. */
static int join_frames(struct gguf_weights *w, const struct tower_source *s,
                       const struct gguf_tensor *g, struct tensor *t, struct err *e)
{
    const struct gguf_tensor *other = gguf_tensor(s->file, "v.patch_embd.weight.1");
    if (!other)
        return 0;
    if (g->n_dims != 4 || other->n_dims != 4 || other->packing != g->packing ||
        memcmp(other->dims, g->dims, sizeof(g->dims)) != 0 ||
        gguf_packings[g->packing].elements != 1 || !g->bytes)
        return differs(s, other, e);
    const size_t each = g->dims[0] * g->dims[1] * gguf_packings[g->packing].bytes;
    uint8_t *both = gguf_weights_own(w, malloc(2 * g->bytes));
    if (!both)
        return err_nomem(e);
    for (size_t i = 0; i < g->bytes / each; i++) {
        memcpy(both + 2 * i * each, g->data + i * each, each);
        memcpy(both + (2 * i + 1) * each, other->data + i * each, each);
    }
    t->n_dims = 5;
    t->dims[4] = t->dims[3], t->dims[3] = t->dims[2];
    t->dims[2] = 2;
    t->bytes = 2 * g->bytes;
    t->data = both;
    t->in_memory = true;
    return 0;
}

/* A tensor of `n` units of `each` bytes in another order: unit i is the file's from(o, i). */
struct order {
    size_t n, each;
    size_t places, channels; /* of a patch */
    size_t head, heads;      /* rows of a head; heads of q and k */
    size_t (*from)(const struct order *o, size_t i);
};

static int reorder(struct gguf_weights *w, const struct gguf_tensor *g, const struct order *o,
                   struct tensor *t, struct err *e)
{
    uint8_t *other = gguf_weights_own(w, malloc(g->bytes));
    if (!other)
        return err_nomem(e);
    for (size_t i = 0; i < o->n; i++)
        memcpy(other + i * o->each, g->data + o->from(o, i) * o->each, o->each);
    t->data = other;
    t->in_memory = true;
    return 0;
}

static size_t from_channels(const struct order *o, size_t i)
{
    const size_t patch = o->places * o->channels, within = i % patch;
    return i / patch * patch + within % o->channels * o->places + within / o->channels;
}

/* [hidden][channels][rows][columns], or numbers of a patch in that order, as
 * [hidden][rows][columns][channels]. */
static int turn_channels(struct gguf_weights *w, const struct tower_source *s,
                         const struct gguf_tensor *g, struct tensor *t, struct err *e)
{
    const bool planes = g->n_dims == 4;
    const size_t each = gguf_packings[g->packing].bytes;
    const size_t channels = planes ? g->dims[2] : 3;
    const size_t places = planes ? g->dims[0] * g->dims[1] : g->dims[0] / 3;
    const struct order o = {g->bytes / each, each, places, channels, .from = from_channels};
    if (gguf_packings[g->packing].elements != 1 || !g->bytes || o.n % (places * channels))
        return differs(s, g, e);
    if (planes) {
        t->n_dims = 2;
        t->dims[0] = g->dims[3], t->dims[1] = places * channels;
    }
    return reorder(w, g, &o, t, e);
}

static size_t from_axes(const struct order *o, size_t i)
{
    const size_t at = i % o->head;
    return i / o->head >= o->heads ? i : i - at + at / 2 % 2 * (o->head / 2) + at / 4 * 2 + at % 2;
}

/* Rows of q and k whose pairs rotate by column and by row in turn. */
static int weave_axes(struct gguf_weights *w, const struct tower_source *s,
                      const struct gguf_tensor *g, struct tensor *t, struct err *e)
{
    const size_t rows = g->dims[g->n_dims - 1], head = s->shape.head;
    const size_t heads = 2 * (size_t)s->shape.heads;
    const struct order o = {rows, rows ? g->bytes / rows : 0, 1, 1, head, heads, from_axes};
    if (!g->bytes || !head || head % 4 || rows < head * heads)
        return differs(s, g, e);
    return reorder(w, g, &o, t, e);
}

static size_t from_tables(const struct order *o, size_t i) { return i % 2 * (o->n / 2) + i / 2; }

/* [2][positions][hidden] as [positions][2][hidden]. */
static int weave_tables(struct gguf_weights *w, const struct tower_source *s,
                        const struct gguf_tensor *g, struct tensor *t, struct err *e)
{
    const size_t rows = g->n_dims == 3 ? g->dims[1] * g->dims[2] : 0;
    const struct order o = {rows, rows ? g->bytes / rows : 0, .from = from_tables};
    if (!g->bytes || !rows || g->dims[2] != 2)
        return differs(s, g, e);
    t->dims[0] = g->dims[1], t->dims[1] = 2;
    return reorder(w, g, &o, t, e);
}

/* What the converter did to the order of a tensor's numbers. */
static int restore(struct gguf_weights *w, const struct tower_source *s,
                   const struct gguf_tensor *g, const struct gguf_use *u, struct tensor *t,
                   struct err *e)
{
    const bool weight = strcmp(u->suffix, ".bias") != 0, patch = u->role == W_PATCH && weight;
    if (s->layout.channels_last && (patch || u->role == W_PIXEL_NORM))
        return turn_channels(w, s, g, t, e);
    if (s->layout.axes_apart && u->role == W_QKV)
        return weave_axes(w, s, g, t, e);
    if (s->layout.tables_apart && u->role == W_PATCH_POSITIONS)
        return weave_tables(w, s, g, t, e);
    return patch ? join_frames(w, s, g, t, e) : 0;
}

/* ---------------------------------------------------------------- the file */

/* Is it a part of a stack? *layer and *which (0: q) if so. */
static bool is_part(const struct tower_source *s, const char *name, int *layer, int *which)
{
    static const char *const parts[] = {"v.blk.*.attn_q", "v.blk.*.attn_k", "v.blk.*.attn_v"};
    const char *dot = strrchr(name, '.');
    for (int i = 0; i < 3 && s->a->names[W_QKV]; i++)
        if (dot && gguf_name_matches(name, (size_t)(dot - name), parts[i], layer)) {
            *which = i;
            return true;
        }
    return false;
}

static int take(struct gguf_weights *w, const struct tower_source *s, const struct gguf_tensor *g,
                struct err *e)
{
    struct gguf_use u;
    int layer, which;
    struct tensor t = {
        .file = s->file->path, .begin = g->begin, .bytes = g->bytes, .data = g->data};
    if (is_unused(g->name) || strcmp(g->name, "v.patch_embd.weight.1") == 0)
        return 0;
    if (is_part(s, g->name, &layer, &which))
        return which ? 0 : add_stacked(w, s, g, layer, strrchr(g->name, '.'), e);
    const struct tower_name *row = use_of(s, g->name, &u);
    if (!row)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has no place in this tower",
                       s->file->path, g->name);
    gguf_weights_dims(&t, g);
    if (gguf_weights_type(&t, g, e) || restore(w, s, g, &u, &t, e))
        return -1;
    if (!(t.name = gguf_weights_spell(w, s->a, &u, 0)))
        return err_nomem(e);
    if (row->how & PLUS_ONE ? gguf_weights_undo_plus(w, &t, 1, e)
                            : gguf_weights_order(w, &t, u.role, &s->shape, e))
        return -1;
    return gguf_weights_add(w, &t, e);
}

static int open_set(struct gguf_weights *w, const char *path, const struct arch *a, struct err *e)
{
    if (gguf_set_open(&w->set, path, e))
        return -1;
    if (!w->set.projector)
        return err_set(e, ERR_VALIDATION,
                       "%s: the vision tower is in a file of its own: see --mmproj", path);
    struct tower_source s = source(w->set.projector, a);
    s.shape.family = &s.order;
    for (uint32_t i = 0; i < s.file->n_tensors; i++)
        if (take(w, &s, &s.file->tensors[i], e))
            return -1;
    gguf_weights_sort(w);
    return 0;
}

int gguf_tower_open(struct gguf_weights *w, const char *path, const struct arch *a, struct err *e)
{
    *w = (struct gguf_weights){0};
    if (open_set(w, path, a, e) == 0)
        return 0;
    gguf_weights_close(w);
    return -1;
}
