/* What goes to the shards and what comes to the clients, message by message. */
#include "router/scheduler/deliver.h"
#include "router/scheduler/wire.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

static const uint32_t prompt[] = {5, 6, 7, 8, 9};
static const char *const stops[] = {"\n\n", "END"};

static struct gen_request a_request(void)
{
    return (struct gen_request){.params = {.temperature = 0.5f,
                                           .top_p = 0.9f,
                                           .typical_p = 1,
                                           .repetition_penalty = 1.1f,
                                           .top_k = 7,
                                           .do_sample = true,
                                           .seed = 1ull << 63,
                                           .constraint = "a*",
                                           .constraint_kind = CONSTRAINT_REGEX,
                                           .constraint_front = {CONSTRAINT_REASONS, THOUGHT_SEED},
                                           .stop = stops,
                                           .n_stop = 2,
                                           .max_new_tokens = 4,
                                           .top_n_tokens = 3,
                                           .adapter_id = "x"},
                                .ids = prompt,
                                .n_ids = 5,
                                .inputs = "hello",
                                .truncate = 5};
}

static uint32_t blocks[] = {9, 3, 4};

static struct seq *a_seq(struct gen_request *r, uint64_t id)
{
    struct seq *q = seq_new(r, id, 0);
    q->kv = (struct kv_table){.ids = blocks, .len = 3, .n_cached = 4};
    q->waiter.n_reserve = 8;
    return q;
}

static void done(struct seq *q)
{
    q->kv = (struct kv_table){0};
    seq_free(q);
}

TEST(a_peer_of_ours_gets_ids_and_blocks)
{
    struct gen_request r = a_request();
    struct seq *q = a_seq(&r, 41);
    struct rpc_mem m;
    struct wire_batch old = {.id = 3};
    rpc_mem_init(&m, 1 << 20);
    q->cut = true;
    q->n_now = 1;
    const Generate__V3__PrefillRequest *p = (const void *)wire_prefill(
        &(struct wire_peer){.takes_input_ids = true, .block_size = 4}, 12, &q, 1, &old, NULL, &m);
    assert_int_equal(p->batch->id, 12);
    assert_int_equal(p->batch->size, 1);
    assert_int_equal(p->batch->max_blocks, 3);
    assert_int_equal(p->cached_batch->id, 3);
    const Generate__V3__Request *w = p->batch->requests[0];
    assert_int_equal(w->id, 41);
    assert_int_equal(w->n_input_ids, 5);
    assert_memory_equal(w->input_ids, prompt, sizeof(prompt));
    assert_int_equal(w->n_blocks, 3);
    assert_int_equal(w->n_slots, 0);
    assert_null(w->input_chunks);
    assert_int_equal(w->cache_len, 4);
    assert_int_equal(w->chunk_len, 1);
    assert_string_equal(w->adapter_id, "x");
    assert_int_equal(w->top_n_tokens, 3);
    assert_true(w->parameters->seed == 1ull << 63);
    assert_int_equal(w->parameters->grammar_type, GENERATE__V3__GRAMMAR_TYPE__GRAMMAR_TYPE_REGEX);
    assert_int_equal(w->parameters->grammar_reasoning,
                     GENERATE__V3__GRAMMAR_REASONING__GRAMMAR_REASONING_OPEN);
    assert_int_equal(w->parameters->reasoning_marks,
                     GENERATE__V3__REASONING_MARKS__REASONING_MARKS_SEED);
    assert_string_equal(w->stopping_parameters->stop_sequences[1], "END");
    assert_int_equal(w->stopping_parameters->max_new_tokens, 4);
    rpc_mem_free(&m);
    done(q);
}

TEST(images_go_along_whenever_a_prompt_is_computed)
{
    static const struct gen_medium media[] = {
        {.bytes = "PNG1", .n_bytes = 4, .type = "image/png", .first = 1, .n = 2, .digest = 11},
        {.bytes = "GIF", .n_bytes = 3, .type = "image/gif", .first = 3, .n = 1, .digest = 12}};
    struct gen_request r = a_request();
    struct wire_peer ours = {.takes_input_ids = true, .block_size = 4};
    struct rpc_mem m;
    r.media = media;
    r.n_media = 2;
    struct seq *q = a_seq(&r, 41);
    for (int again = 0; again < 2; again++) { /* the second time after it was preempted */
        rpc_mem_init(&m, 1 << 20);
        const Generate__V3__PrefillRequest *p =
            (const void *)wire_prefill(&ours, 4, &q, 1, NULL, NULL, &m);
        const Generate__V3__Request *x = p->batch->requests[0];
        assert_int_equal(x->n_media, 2);
        assert_int_equal(x->media[0]->position, 1);
        assert_int_equal(x->media[0]->tokens, 2);
        assert_int_equal(x->media[0]->digest, 11);
        assert_int_equal(x->media[1]->image->data.len, 3);
        assert_memory_equal(x->media[1]->image->data.data, "GIF", 3);
        assert_string_equal(x->media[1]->image->mimetype, "image/gif");
        rpc_mem_free(&m);
        seq_push(q, 99);
    }
    const struct kv_media k = seq_media(q);
    assert_int_equal(k.n, 2);
    assert_int_equal(k.v[1].first, 3);
    assert_int_equal(k.v[1].digest, 12);
    done(q);
}

TEST(a_text_for_the_encoder_goes_as_ids)
{
    static const uint32_t text[] = {12, 13, 1};
    static const struct gen_medium medium = {.ids = text, .n_ids = 3, .n = 1, .digest = 11};
    struct gen_request r = a_request();
    struct wire_peer ours = {.takes_input_ids = true, .block_size = 4};
    struct rpc_mem m;
    r.n_ids = 1;
    r.media = &medium;
    r.n_media = 1;
    struct seq *q = a_seq(&r, 41);
    rpc_mem_init(&m, 1 << 20);
    const Generate__V3__PrefillRequest *p =
        (const void *)wire_prefill(&ours, 4, &q, 1, NULL, NULL, &m);
    const Generate__V3__Request *x = p->batch->requests[0];
    assert_int_equal(x->n_input_ids, 1);
    assert_int_equal(x->n_media, 1);
    assert_null(x->media[0]->image);
    assert_int_equal(x->media[0]->n_text, 3);
    assert_memory_equal(x->media[0]->text, text, sizeof(text));
    assert_true(x->media[0]->digest == 11 && x->media[0]->tokens == 1);
    rpc_mem_free(&m);
    uint64_t key = 0;
    const struct kv_media k = seq_media(q);
    kv_media_keys(&k, r.ids, 0, 1, &key);
    assert_true(key != r.ids[0]); /* what the cache compares is of the text */
    done(q);
}

TEST(tgis_server_gets_text_and_slots)
{
    static const uint32_t want[] = {36, 37, 38, 39, 12, 13, 14, 15};
    struct gen_request r = a_request();
    struct seq *q = a_seq(&r, 41);
    struct rpc_mem m;
    rpc_mem_init(&m, 1 << 20);
    const Generate__V3__PrefillRequest *p =
        (const void *)wire_prefill(&(struct wire_peer){.block_size = 4}, 0, &q, 1, NULL, NULL, &m);
    const Generate__V3__Request *w = p->batch->requests[0];
    assert_null(p->cached_batch);
    assert_int_equal(w->n_input_ids, 0);
    assert_int_equal(w->n_slots, 8);
    assert_memory_equal(w->slots, want, sizeof(want));
    assert_string_equal(w->inputs, "hello");
    assert_string_equal(w->input_chunks->chunks[0]->text, "hello");
    assert_int_equal(w->_chunk_len_case, 0);
    /* one that pads lays its cache out itself */
    p = (const void *)wire_prefill(&(struct wire_peer){.requires_padding = true, .block_size = 4},
                                   0, &q, 1, NULL, NULL, &m);
    assert_int_equal(p->batch->requests[0]->n_blocks, 0);
    assert_int_equal(p->batch->requests[0]->cache_len, 0);
    rpc_mem_free(&m);
    done(q);
}

TEST(a_model_with_state_gets_cells)
{
    struct gen_request r = a_request();
    struct seq *q = a_seq(&r, 41);
    struct rpc_mem m;
    struct wire_peer peer = {.takes_input_ids = true, .block_size = 4};
    struct wire_batch old = {.id = 3};
    const struct wire_save saves[] = {{7, 2, 16}, {8, 0, 32}};
    struct wire_edits x = {.saves = saves, .n_saves = 2};
    rpc_mem_init(&m, 1 << 16);
    const Generate__V3__PrefillRequest *p =
        (const void *)wire_prefill(&peer, 0, &q, 1, &old, NULL, &m);
    assert_int_equal(p->batch->requests[0]->n_state_cells, 0);
    q->kv.stateful = true;
    q->kv.cells[0] = 5;
    p = (const void *)wire_prefill(&peer, 0, &q, 1, &old, NULL, &m);
    assert_int_equal(p->batch->requests[0]->n_state_cells, 2);
    assert_int_equal(p->batch->requests[0]->state_cells[0], 5);
    assert_int_equal(p->batch->requests[0]->state_cells[1], 0);
    assert_int_equal(p->batch->requests[0]->_state_from_case, 0);
    q->kv.state_from = 1; /* cell 0 */
    p = (const void *)wire_prefill(&peer, 0, &q, 1, &old, &x, &m);
    assert_int_not_equal(p->batch->requests[0]->_state_from_case, 0);
    assert_int_equal(p->batch->requests[0]->state_from, 0);
    assert_int_equal(p->edits->n_state_saves, 2);
    assert_int_equal(p->edits->state_saves[0]->request_id, 7);
    assert_int_equal(p->edits->state_saves[0]->cell, 2);
    assert_int_equal(p->edits->state_saves[0]->tokens, 16);
    const struct wire_batch *batches[] = {&old};
    const Generate__V3__DecodeRequest *d = (const void *)wire_decode(batches, 1, &x, &m);
    assert_int_equal(d->edits->state_saves[1]->tokens, 32);
    rpc_mem_free(&m);
    done(q);
}

TEST(a_copy_goes_before_the_step_that_needs_it)
{
    struct gen_request r = a_request();
    struct seq *q = a_seq(&r, 41);
    struct rpc_mem m;
    rpc_mem_init(&m, 1 << 16);
    struct wire_peer peer = {.takes_input_ids = true, .block_size = 4};
    const Generate__V3__PrefillRequest *p =
        (const void *)wire_prefill(&peer, 0, &q, 1, NULL, NULL, &m);
    assert_int_equal(p->n_kv_copies, 0);
    q->kv.n_cached = 6;
    q->kv.copy_from = 77;
    p = (const void *)wire_prefill(&peer, 0, &q, 1, NULL, NULL, &m);
    assert_int_equal(p->n_kv_copies, 1);
    assert_int_equal(p->kv_copies[0]->source, 77);
    assert_int_equal(p->kv_copies[0]->target, q->kv.ids[1]);
    assert_int_equal(p->batch->requests[0]->cache_len, 6);
    q->kv.copy_from = 0;
    rpc_mem_free(&m);
    done(q);
}

TEST(the_probe_is_tgis)
{
    struct rpc_mem m;
    rpc_mem_init(&m, 1 << 16);
    const Generate__V3__PrefillRequest *p =
        (const void *)wire_probe(&(struct wire_peer){.block_size = 4}, &m);
    const Generate__V3__Request *w = p->batch->requests[0];
    assert_true(p->batch->id == UINT64_MAX && w->id == UINT64_MAX);
    assert_string_equal(w->inputs, "liveness");
    assert_int_equal(w->truncate, 1);
    assert_int_equal(w->stopping_parameters->max_new_tokens, 1);
    assert_int_equal(w->n_blocks, 1);
    assert_int_equal(w->blocks[0], 0);
    assert_int_equal(p->batch->max_tokens, 2);
    rpc_mem_free(&m);
}

TEST(no_memory_is_no_message)
{
    struct gen_request r = a_request();
    struct seq *q = a_seq(&r, 41);
    for (size_t limit = 1; limit < 1500; limit += 8) {
        struct rpc_mem m;
        rpc_mem_init(&m, limit);
        const ProtobufCMessage *p =
            wire_prefill(&(struct wire_peer){.block_size = 4}, 0, &q, 1, NULL, NULL, &m);
        assert_true(p || limit < 1400);
        rpc_mem_free(&m);
    }
    done(q);
}

/* ------------------------------------------------ events */
static char seen[1000];
static int n_flushed[2];

static void on_event(struct gen_request *r, const struct gen_event *ev)
{
    char *at = seen + strlen(seen);
    size_t room = sizeof(seen) - strlen(seen);
    (void)r;
    if (ev->type == GEN_PREFILL)
        snprintf(at, room, "[prefill %u %u %s]", ev->n_prefill, ev->prefill[1].id,
                 isnan(ev->prefill[0].logprob) ? "nan" : "?");
    else if (ev->type == GEN_ERROR)
        snprintf(at, room, "[error %s]", ev->err->msg);
    else
        snprintf(at, room, "[%u '%.*s' %.1f%s top %u%s%s]", ev->token.id, (int)ev->token.text_len,
                 ev->token.text, (double)ev->token.logprob, ev->token.special ? " special" : "",
                 ev->n_top, ev->end ? " end " : "", ev->end ? ev->end->text : "");
}

static void on_flush(void *arg) { ++*(int *)arg; }

TEST(a_step_of_several_tokens_is_an_event_each)
{
    uint32_t ids[] = {1, 2}, prefill[] = {8, 9}, top[] = {2, 4, 6};
    float lp[] = {-0.5f, -1.5f}, prefill_lp[] = {NAN, -1};
    protobuf_c_boolean special[] = {0, 1};
    char *texts[] = {(char[]){"a"}, (char[]){"b"}};
    Generate__V3__Tokens t = GENERATE__V3__TOKENS__INIT, pre = GENERATE__V3__TOKENS__INIT,
                         alt = GENERATE__V3__TOKENS__INIT, *tops[] = {&alt, &alt};
    Generate__V3__Generation g = GENERATE__V3__GENERATION__INIT;
    Generate__V3__GeneratedText end = GENERATE__V3__GENERATED_TEXT__INIT;
    struct gen_request r = a_request(), r2 = a_request(), r3 = a_request();
    struct deliver d = {0};
    struct rpc_mem m;
    rpc_mem_init(&m, 1 << 16);
    t.n_ids = t.n_logprobs = t.n_texts = t.n_is_special = 2;
    t.ids = ids, t.logprobs = lp, t.texts = texts, t.is_special = special;
    pre.n_ids = pre.n_logprobs = 2; /* texts and is_special left out, as TGI leaves the latter */
    pre.ids = prefill, pre.logprobs = prefill_lp;
    alt.n_ids = 3;
    alt.ids = top;
    end.text = (char[]){"ab"};
    g.tokens = &t, g.prefill_tokens = &pre, g.generated_text = &end;
    g.n_top_tokens = 2, g.top_tokens = tops;
    r.sink = (struct gen_sink){on_event, on_flush, &n_flushed[0]};
    r2.sink = r.sink;
    r3.sink = (struct gen_sink){on_event, on_flush, &n_flushed[1]};
    struct seq *q = a_seq(&r, 1), *q2 = a_seq(&r2, 2), *q3 = a_seq(&r3, 3);
    assert_null(deliver_check(&g));
    assert_int_equal(deliver_generation(&d, q, &g, 77, &m), 0);
    assert_string_equal(seen,
                        "[prefill 2 9 nan][1 'a' -0.5 top 3][2 'b' -1.5 special top 3 end ab]");
    assert_null(q->req);
    assert_true(r.times.ended == 77);
    struct err e = ERR_INIT;
    err_set(&e, ERR_GENERATION, "no");
    seen[0] = '\0';
    deliver_error(&d, q, &e, 78); /* has had its last */
    deliver_error(&d, q2, &e, 78);
    deliver_error(&d, q3, &e, 78);
    assert_string_equal(seen, "[error no][error no]");
    deliver_flush(&d);
    assert_int_equal(n_flushed[0], 1); /* two requests, one owner, one wake-up */
    assert_int_equal(n_flushed[1], 1);
    deliver_flush(&d);
    assert_int_equal(n_flushed[0], 1);
    rpc_mem_free(&m);
    done(q), done(q2), done(q3);
}

TEST(a_generation_must_say_something)
{
    Generate__V3__Tokens none = GENERATE__V3__TOKENS__INIT;
    Generate__V3__Generation g = GENERATE__V3__GENERATION__INIT;
    assert_non_null(deliver_check(&g));
    g.tokens = &none;
    assert_non_null(deliver_check(&g));
    g.error = (char[]){"bad grammar"};
    assert_null(deliver_check(&g));
}

/* A step with nothing to change is sent as it always was. */
TEST(edits_that_change_nothing_cost_no_byte)
{
    struct wire_batch b = {7, 2, 64, 2};
    const struct wire_batch *list[] = {&b};
    const uint64_t gone[] = {3};
    struct wire_edits none = {0}, one = {.leave = gone, .n_leave = 1};
    struct rpc_mem m;
    rpc_mem_init(&m, 1 << 20);
    size_t without = protobuf_c_message_get_packed_size(wire_decode(list, 1, NULL, &m));
    size_t empty = protobuf_c_message_get_packed_size(wire_decode(list, 1, &none, &m));
    size_t leaves = protobuf_c_message_get_packed_size(wire_decode(list, 1, &one, &m));
    assert_int_equal(empty, without);
    assert_true(leaves > without);
    rpc_mem_free(&m);
}

int main(void) { return tests_run(NULL, NULL); }
