/* Which replica a request goes to, and what is believed of their caches. */
#include "router/fleet/pick.h"
#include "router/fleet/prefixes.h"
#include "tests/unit/test.h"
#include <string.h>

struct pick_case {
    const char *what;
    uint32_t n_tokens;
    struct pick_candidate c[3];
    int want;
};

#define ROOM .room = true, .has_adapter = true

TEST(the_cheapest_with_room_is_taken)
{
    static const struct pick_case cases[] = {
        {"none has room", 10, {{0}}, -1},
        {"all alike: the first", 10, {{ROOM}, {ROOM}, {ROOM}}, 0},
        {"who has no room is passed", 10, {{0}, {ROOM, .waiting = 999}, {0}}, 1},
        {"the longest shared prefix",
         500,
         {{ROOM, .shared = 16}, {ROOM, .shared = 480}, {ROOM}},
         1},
        {"until more waits there than it saves",
         500,
         {{ROOM}, {ROOM, .shared = 480, .waiting = 481}, {ROOM, .waiting = 1}},
         0},
        {"not yet", 500, {{ROOM}, {ROOM, .shared = 480, .waiting = 479}, {ROOM}}, 1},
        {"what runs counts an eighth",
         500,
         {{ROOM, .shared = 100, .running = 808}, {ROOM, .waiting = 0}, {0}},
         1},
        {"less runs: the prefix", 500, {{ROOM, .shared = 100, .running = 792}, {ROOM}, {0}}, 0},
        {"the adapter is in use there", 20, {{.room = true}, {ROOM, .waiting = 200}, {0}}, 1},
        {"it is not worth any queue", 20, {{.room = true}, {ROOM, .waiting = 300}, {0}}, 0},
        {"equal prices: the least load", 20, {{ROOM, .running = 7}, {ROOM, .running = 3}, {0}}, 1},
        {"all idle: the least computed", 20, {{ROOM, .computed = 7}, {ROOM}, {0}}, 1},
        {"more is shared than asked for", 16, {{ROOM, .waiting = 1}, {ROOM, .shared = 64}, {0}}, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct pick_case *k = &cases[i];
        int got = fleet_pick(FLEET_PREFIX, k->c, 3, k->n_tokens, 0);
        if (got != k->want)
            print_error("%s\n", k->what);
        assert_int_equal(got, k->want);
    }
}

TEST(round_robin_takes_turns)
{
    const struct pick_candidate c[3] = {{ROOM, .waiting = 1000}, {0}, {ROOM}};
    assert_int_equal(fleet_pick(FLEET_ROUND_ROBIN, c, 3, 1, 0), 0);
    assert_int_equal(fleet_pick(FLEET_ROUND_ROBIN, c, 3, 1, 1), 2);
    assert_int_equal(fleet_pick(FLEET_ROUND_ROBIN, c, 3, 1, 3), 0);
    assert_int_equal(fleet_pick(FLEET_ROUND_ROBIN, &c[1], 1, 1, 7), -1);
}

static const struct kv_media text = {0};

/* Equal placeholders at 6 .. 16. */
TEST(images_behind_equal_placeholders_have_other_hashes)
{
    uint32_t ids[20] = {0};
    uint64_t x[6], y[6];
    struct kv_medium cat = {.first = 6, .n = 10, .digest = 1}, dog = cat;
    const struct kv_media a = {.v = &cat, .n = 1}, b = {.v = &dog, .n = 1};
    for (uint32_t i = 6; i < 16; i++)
        ids[i] = 99;
    assert_int_equal(prefixes_hash(NULL, 0, &a, ids, 20, 4, x), 5);
    assert_int_equal(prefixes_hash(NULL, 0, &b, ids, 20, 4, y), 5);
    assert_memory_equal(x, y, sizeof(x[0]) * 5);
    dog.digest = 2;
    assert_int_equal(prefixes_hash(NULL, 0, &b, ids, 20, 4, y), 5);
    assert_memory_equal(x, y, sizeof(x[0]) * 2); /* the text in front of them */
    for (int i = 2; i < 5; i++)
        assert_true(x[i] != y[i]);
    prefixes_hash(NULL, 0, &text, ids, 20, 4, y);
    assert_memory_equal(x, y, sizeof(x[0]) * 2);
    assert_true(x[2] != y[2]);
}

/* A block may be longer than what is hashed at once. */
TEST(long_blocks_are_hashed_to_their_ends)
{
    uint32_t ids[201] = {0};
    uint64_t x[3], y[3];
    assert_int_equal(prefixes_hash(NULL, 0, &text, ids, 201, 100, x), 3);
    ids[99] = 1;
    assert_int_equal(prefixes_hash(NULL, 0, &text, ids, 201, 100, y), 3);
    assert_true(x[0] == y[0] && x[1] != y[1]);
    ids[99] = 0;
    ids[199] = 1;
    prefixes_hash(NULL, 0, &text, ids, 201, 100, y);
    assert_true(x[1] == y[1] && x[2] != y[2]);
}

TEST(hashes_are_of_whole_blocks_and_all_before_them)
{
    uint32_t a[40], b[40];
    uint64_t x[11], y[11];
    for (uint32_t i = 0; i < 40; i++)
        a[i] = b[i] = i * i;
    b[9]++;
    assert_int_equal(prefixes_hash(NULL, 0, &text, a, 40, 4, x),
                     10); /* not the last token's block */
    assert_int_equal(prefixes_hash(NULL, 0, &text, a, 41 - 1, 4, y), 10);
    assert_memory_equal(x, y, 10 * sizeof(*x));
    prefixes_hash(NULL, 0, &text, b, 40, 4, y);
    assert_memory_equal(x, y, 3 * sizeof(*x));
    for (int i = 3; i < 10; i++)
        assert_true(x[i] != y[i]);
    assert_int_equal(prefixes_hash("adapter", 0, &text, a, 40, 4, y), 10);
    assert_true(x[0] != y[0] && x[5] != y[5]);
    assert_int_equal(prefixes_hash(NULL, 1ull << 63, &text, a, 40, 4, y), 10);
    assert_true(x[0] != y[0] && x[5] != y[5]);
    assert_int_equal(prefixes_hash(NULL, 0, &text, a, 0, 4, y), 1);
    assert_int_equal(prefixes_hash(NULL, 0, &text, a, 4, 4, y), 1);
    assert_int_equal(prefixes_hash(NULL, 0, &text, a, 5, 4, y), 2);
}

/* 40 beginnings of 8 blocks each, through an index of 64. */
TEST(the_coldest_are_forgotten_from_their_ends)
{
    struct prefixes p = {0};
    uint64_t h[40][8];
    for (uint32_t i = 0; i < 40; i++)
        for (uint32_t k = 0; k < 8; k++)
            h[i][k] = (i * 8 + k + 1) * 0x9e3779b97f4a7c15u;
    assert_int_equal(prefixes_match(&p, h[0], 8), 0); /* nothing is recorded yet */
    prefixes_put(&p, h[0], 8);
    assert_true(prefixes_init(&p, 1));
    for (uint32_t i = 0; i < 40; i++) {
        prefixes_put(&p, h[0], 8); /* is kept warm */
        prefixes_put(&p, h[i], 8);
    }
    assert_int_equal(prefixes_match(&p, h[0], 8), 8);
    assert_int_equal(prefixes_match(&p, h[39], 8), 8);
    assert_int_equal(prefixes_match(&p, h[33], 8), 8);
    assert_int_equal(prefixes_match(&p, h[1], 8), 0);
    prefixes_put(&p, h[1], 3); /* the coldest one loses its end first */
    assert_int_equal(prefixes_match(&p, h[33], 8), 5);
    assert_int_equal(prefixes_match(&p, h[1], 8), 3);
    prefixes_clear(&p);
    assert_int_equal(prefixes_match(&p, h[0], 8), 0);
    prefixes_put(&p, h[2], 8);
    assert_int_equal(prefixes_match(&p, h[2], 8), 8);
    prefixes_free(&p);
}

int main(void) { return tests_run(NULL, NULL); }
