/* What was asked becomes what is generated: defaults, order of the checks, truncation, best of
 * several. */
#include "tests/unit/router/rig.h"

static struct validator v = {.max_best_of = 2,
                             .max_stop_sequences = 2,
                             .max_top_n_tokens = 5,
                             .max_input_tokens = 100,
                             .max_total_tokens = 2000,
                             .vocab_size = VOCAB,
                             .sampling_fields = ~UINT64_C(0)};
static struct arena arena;
static struct gen_request r;
static struct err e;

static int check(const struct ask *q)
{
    struct tok_scratch *scratch = NULL;
    arena_reset(&arena);
    arena_init(&arena, 1 << 20);
    r = (struct gen_request){0};
    e = (struct err)ERR_INIT;
    return validate(&v, q, &scratch, &arena, &r, &e);
}

static struct ask text_ask(const char *s)
{
    return (struct ask){.inputs = s, .n_inputs = strlen(s), .add_special_tokens = true};
}

TEST(defaults_are_neutral)
{
    struct ask q = text_ask("abc");
    assert_int_equal(check(&q), 0);
    assert_int_equal(r.n_ids, 4);
    assert_int_equal(r.params.max_new_tokens, 1996); /* all that fits */
    assert_true(r.params.temperature == 1 && r.params.top_p == 1 && r.params.typical_p == 1);
    assert_true(r.params.repetition_penalty == 1 && r.params.frequency_penalty == 0);
    assert_false(r.params.do_sample);
    uint64_t seed = r.params.seed;
    assert_int_equal(check(&q), 0);
    assert_true(r.params.seed != seed);
}

TEST(sampling_is_what_changes_the_distribution)
{
    struct ask q = text_ask("abc");
    q.temperature = (struct opt_f32){true, 1};
    assert_int_equal(check(&q), 0);
    assert_false(r.params.do_sample);
    q.temperature.v = 0.5f;
    assert_int_equal(check(&q), 0);
    assert_true(r.params.do_sample);
    q = text_ask("abc");
    q.top_k = (struct opt_i64){true, 3};
    assert_int_equal(check(&q), 0);
    assert_true(r.params.do_sample && r.params.top_k == 3);
}

TEST(greedy_is_greedy_beside_cuts)
{
    struct ask q = text_ask("abc");
    q.greedy = true;
    q.top_k = (struct opt_i64){true, 3};
    q.top_p = q.typical_p = (struct opt_f32){true, 0.9f};
    q.min_p = (struct opt_f32){true, 0.1f};
    assert_int_equal(check(&q), 0);
    assert_false(r.params.do_sample);
    assert_true(r.params.top_k == 0 && r.params.top_p == 1 && r.params.typical_p == 1);
    assert_true(r.params.min_p == 0 && r.params.temperature == 1);
    q.top_p.v = 7; /* wrong all the same */
    assert_int_equal(check(&q), -1);
}

/* Everything is wrong: mended one by one, the messages come in TGI's order. */
TEST(checks_run_in_tgis_order)
{
    const char *const stops[] = {"a", "", "c"};
    struct ask q = {.inputs = "",
                    .best_of = {true, 2},
                    .temperature = {true, 0},
                    .repetition_penalty = {true, NAN},
                    .frequency_penalty = {true, 3},
                    .top_p = {true, 1},
                    .typical_p = {true, 0},
                    .top_k = {true, -1},
                    .max_new_tokens = {true, 0},
                    .stop = stops,
                    .n_stop = 3,
                    .seed = {true, 1},
                    .top_n_tokens = {true, 6},
                    .truncate = {true, 101},
                    .constraint = "{\"not\":{}}",
                    .constraint_kind = CONSTRAINT_JSON_SCHEMA};
    const char *const order[] = {"you must use sampling",
                                 "`temperature`",
                                 "`repetition_penalty`",
                                 "`frequency_penalty`",
                                 "`top_p`",
                                 "`typical_p`",
                                 "`top_k`",
                                 "`max_new_tokens` must be",
                                 "`stop` supports",
                                 "`stop` sequences",
                                 "`seed`",
                                 "`top_n_tokens`",
                                 "`inputs` cannot be",
                                 "`truncate`",
                                 "grammar is not valid: JSON schema: no instance satisfies it"};
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        assert_int_equal(check(&q), -1);
        assert_int_equal(e.kind, ERR_VALIDATION);
        assert_int_equal(strncmp(e.msg, "Input validation error: ", 24), 0);
        if (strncmp(e.msg + 24, order[i], strlen(order[i])) != 0)
            fail_msg("wanted %s, got %s", order[i], e.msg);
        switch (i) {
        case 0:
            q.sampling_implied = true;
            break;
        case 1:
            q.temperature.v = 1;
            break;
        case 2:
            q.repetition_penalty.v = 1;
            break;
        case 3:
            q.frequency_penalty.v = -2;
            break;
        case 4:
            q.top_p.v = 0.9f;
            break;
        case 5:
            q.typical_p.v = 0.9f;
            break;
        case 6:
            q.top_k.v = 1;
            break;
        case 7:
            q.max_new_tokens.v = 1;
            break;
        case 8:
            q.n_stop = 2;
            break;
        case 9:
            q.n_stop = 1;
            break;
        case 10:
            q.seed.set = false;
            break;
        case 11:
            q.top_n_tokens.v = 5;
            break;
        case 12:
            q.inputs = "abc", q.n_inputs = 3;
            break;
        case 13:
            q.truncate.v = 100;
            break;
        default:
            q.constraint = "{}";
        }
    }
    assert_int_equal(check(&q), 0);
}

TEST(truncation_keeps_what_stands_in_front)
{
    struct ask q = text_ask("abcdefgh");
    q.truncate = (struct opt_u64){true, 4};
    assert_int_equal(check(&q), 0);
    const uint32_t with[] = {BOS, 'f', 'g', 'h'}, without[] = {'e', 'f', 'g', 'h'};
    assert_int_equal(r.n_ids, 4);
    assert_memory_equal(r.ids, with, sizeof(with));
    q.add_special_tokens = false;
    assert_int_equal(check(&q), 0);
    assert_memory_equal(r.ids, without, sizeof(without));
    q.add_special_tokens = true;
    q.truncate.v = 1;
    assert_int_equal(check(&q), 0);
    assert_int_equal(r.n_ids, 1);
    q.truncate.v = 50;
    assert_int_equal(check(&q), 0);
    assert_int_equal(r.n_ids, 9);
    assert_int_equal(r.truncate, 50);
}

/* The decoder's prompt is one token, whose medium is the text. Limits and counts are the text's. */
TEST(an_encoder_reads_the_prompt)
{
    struct validator with = v;
    struct tok_scratch *scratch = NULL;
    struct ask q = text_ask("abc");
    with.has_encoder = true;
    with.decoder_start = 7;
    assert_int_equal(check(&q), 0);
    const uint32_t *plain = r.ids;
    assert_int_equal(r.n_input, 4);
    assert_int_equal(r.n_media, 0);
    struct gen_request one = {0}, other = {0};
    assert_int_equal(validate(&with, &q, &scratch, &arena, &one, &e), 0);
    assert_int_equal(one.n_ids, 1);
    assert_int_equal(one.ids[0], 7);
    assert_int_equal(one.n_input, 4);
    assert_int_equal(one.params.max_new_tokens, 1996);
    assert_int_equal(one.n_media, 1);
    assert_int_equal(one.media->n_ids, 4);
    assert_memory_equal(one.media->ids, plain, 4 * sizeof(*plain));
    assert_true(one.media->first == 0 && one.media->n == 1 && !one.media->bytes);
    q = text_ask("abd");
    assert_int_equal(validate(&with, &q, &scratch, &arena, &other, &e), 0);
    assert_true(other.media->digest != one.media->digest && one.media->digest);
    /* every answer begins with a token */
    struct sampling_defaults d = {.forced_bos_token_id = {true, 9}};
    with.defaults = &d;
    other = (struct gen_request){0};
    assert_int_equal(validate(&with, &q, &scratch, &arena, &other, &e), 0);
    assert_true(other.n_ids == 2 && other.ids[0] == 7 && other.ids[1] == 9 && other.n_input == 4);
    d.forced_bos_token_id.v = with.vocab_size;
    other = (struct gen_request){0};
    assert_int_equal(validate(&with, &q, &scratch, &arena, &other, &e), -1);
    assert_non_null(strstr(e.msg, "`forced_bos_token_id`"));
    with.has_encoder = false;
    other = (struct gen_request){0};
    assert_int_equal(validate(&with, &q, &scratch, &arena, &other, &e), 0);
    assert_int_equal(other.n_ids, 4);
}

/* A tokenizer with words that the embedding has no rows for. */
TEST(ids_of_text_are_of_the_model)
{
    struct validator small = v;
    struct tok_scratch *scratch = NULL;
    struct ask q = text_ask("abz");
    assert_int_equal(check(&q), 0);
    small.vocab_size = 'z';
    q.add_special_tokens = false;
    assert_int_equal(validate(&small, &q, &scratch, &arena, &r, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_non_null(strstr(e.msg, "token id 122 is outside the vocabulary of 122"));
}

TEST(budgets)
{
    static char s[1200];
    memset(s, 'x', 99);
    struct ask q = text_ask(s); /* 100 tokens */
    q.max_new_tokens = (struct opt_u64){true, 1900};
    assert_int_equal(check(&q), 0);
    q.max_new_tokens.v = 100000; /* the first 1024 fit */
    assert_int_equal(check(&q), 0);
    assert_int_equal(r.params.max_new_tokens, 1900);
    memset(s, 'x', 100);
    q = text_ask(s);
    assert_int_equal(check(&q), -1);
    assert_non_null(strstr(e.msg, "`inputs` must have less than 100 tokens. Given: 101"));
    memset(s, 'x', 1100);
    q = text_ask(s);
    q.max_new_tokens = (struct opt_u64){true, 950};
    assert_int_equal(check(&q), -1);
    assert_non_null(
        strstr(e.msg, "must be <= 2000. Given: 1101 `inputs` tokens and 950 `max_new_tokens`"));
}

static const struct answer *pick(void *arg, uint32_t i) { return &((struct answer *)arg)[i]; }

TEST(prompt_logprobs_are_of_a_size_that_a_message_can_have)
{
    const struct validator small = v;
    static uint32_t ids[60000];
    struct ask q = {.style = ASK_OPENAI, .ids = ids, .n_ids = 47619, .decoder_input_details = true};
    q.top_n_tokens = (struct opt_u64){true, 20};
    v.max_input_tokens = v.max_total_tokens = 100000;
    assert_int_equal(check(&q), 0);
    q.n_ids++;
    assert_int_equal(check(&q), -1);
    assert_non_null(strstr(e.msg, "log-probabilities of the prompt: 47620 tokens with 21 each"));
    q.decoder_input_details = false;
    assert_int_equal(check(&q), 0);
    v = small;
}

/* Asks of one body: lists as large as the vocabulary are made once. */
TEST(what_asks_share_is_made_once)
{
    static const uint32_t allowed[] = {1, 2};
    static const char *words[] = {"abc"};
    struct ask q = text_ask("abc"), other = text_ask("abd");
    struct gen_request first;
    q.allowed_ids = other.allowed_ids = allowed;
    q.n_allowed = other.n_allowed = 2;
    q.bad_words = other.bad_words = words;
    q.n_bad_words = other.n_bad_words = 1;
    q.constraint = other.constraint = "{}";
    v.takes_bias = true;
    assert_int_equal(check(&q), 0);
    assert_int_equal(r.params.n_bias, VOCAB - 2);
    first = r;
    v.like = &q;
    v.like_made = &first;
    struct tok_scratch *scratch = NULL;
    const size_t before = arena.used;
    r = (struct gen_request){0};
    assert_int_equal(validate(&v, &other, &scratch, &arena, &r, &e), 0);
    assert_true(arena.used - before < VOCAB);
    assert_ptr_equal(r.params.bias, first.params.bias);
    assert_int_equal(r.params.n_bias, VOCAB - 2);
    assert_memory_equal(&r.params.bad_words, &first.params.bad_words, sizeof(r.params.bad_words));
    other.allowed_ids = allowed + 1; /* another list, and one without */
    other.n_allowed = 1;
    other.bad_words = NULL;
    other.n_bad_words = 0;
    assert_int_equal(validate(&v, &other, &scratch, &arena, &r, &e), 0);
    assert_int_equal(r.params.n_bias, VOCAB - 1);
    assert_int_equal(r.params.bad_words.n, 0);
    v.like = NULL;
    v.takes_bias = false;
}

/* Everywhere but on TGI's routes. */
TEST(answers_are_clipped_to_the_room)
{
    static const uint64_t asked[] = {5, 1996, 1997, 100000, UINT32_MAX},
                          got[] = {5, 1996, 1996, 1996, 1996};
    for (enum ask_style style = ASK_OPENAI; style <= ASK_LMTP; style++) {
        for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
            struct ask q = text_ask("abc");
            q.style = style;
            q.max_new_tokens = (struct opt_u64){true, asked[i]};
            assert_int_equal(check(&q), 0);
            assert_int_equal(r.params.max_new_tokens, got[i]);
        }
        uint32_t ids[101] = {0};
        struct ask q = {.style = style, .input_name = "messages", .ids = ids, .n_ids = 100};
        q.max_new_tokens = (struct opt_u64){true, 1950};
        assert_int_equal(check(&q), 0);
        assert_int_equal(r.params.max_new_tokens, 1900);
        q.n_ids = 101;
        assert_int_equal(check(&q), -1);
        assert_non_null(strstr(e.msg, style == ASK_ANTHROPIC
                                          ? "prompt is too long: 101 tokens > 100 maximum"
                                          : "`messages` is too long: this model's maximum context "
                                            "length is 2000 tokens, 100 of them for it, and it has "
                                            "101"));
        assert_null(strstr(e.msg, "inputs"));
        assert_int_equal(!strncmp(e.msg, "prompt is too long", 18), style == ASK_ANTHROPIC);
    }
}

TEST(best_is_the_highest_mean_and_the_first_of_equals)
{
    struct answer a[3] = {{.n_tokens = 2, .logprob_sum = -3},
                          {.n_tokens = 4, .logprob_sum = -4},
                          {.n_tokens = 1, .logprob_sum = -1}};
    assert_int_equal(answer_best(pick, a, 3), 1);
    uint32_t rank[3];
    answer_rank(pick, a, 3, rank);
    assert_int_equal(rank[0], 1);
    for (int i = 1; i < 3; i++)
        assert_true(answer_mean_logprob(&a[rank[i - 1]]) >= answer_mean_logprob(&a[rank[i]]));
    a[0].logprob_sum = -1;
    assert_int_equal(answer_best(pick, a, 3), 0);
    a[0].n_tokens = 0; /* nothing generated is never better */
    assert_int_equal(answer_best(pick, a, 3), 1);
}

TEST(notes_are_deep_copies)
{
    char text[8] = "abc", more[8] = "de";
    struct gen_token top[2] = {{1, -1, false, text, 3}, {2, -2, true, more, 2}};
    struct err why;
    err_set(&why, ERR_GENERATION, "because");
    struct gen_end end = {FINISH_STOP, 7, text, 3};
    struct gen_event ev = {.type = GEN_TOKEN,
                           .token = {5, -0.5f, true, more, 2},
                           .prefill = top,
                           .n_prefill = 2,
                           .top = top + 1,
                           .n_top = 1,
                           .end = &end,
                           .err = &why};
    struct note *n = note_copy(&r, &ev);
    memset(text, '!', 7), memset(more, '!', 7), memset(top, 0, sizeof(top)),
        memset(&end, 0, sizeof(end)), memset(&why, 0, sizeof(why));
    assert_string_equal(n->event.token.text, "de");
    assert_string_equal(n->event.prefill[0].text, "abc");
    assert_int_equal(n->event.prefill[1].id, 2);
    assert_string_equal(n->event.top[0].text, "de");
    assert_true(n->event.top[0].special);
    assert_string_equal(n->event.end->text, "abc");
    assert_int_equal(n->event.end->generated_tokens, 7);
    assert_string_equal(n->event.err->msg, "because");
    assert_ptr_equal(n->request, &r);
    free(n);
}

int main(void)
{
    int rc = tests_run(NULL, NULL);
    arena_reset(&arena);
    return rc;
}
