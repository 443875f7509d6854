/* Permits and their shares among keys. */
#include "router/generate/admission.h"
#include "tests/unit/test.h"

enum { CAPACITY = 128 };

TEST(one_key_has_all)
{
    struct admission a;
    admission_init(&a, 3);
    for (uint64_t key = 0; key < 2; key++) {
        assert_int_equal(admission_take(&a, key, 1), 1);
        assert_int_equal(admission_take(&a, key, UINT32_MAX), 2); /* as many as there are */
        assert_int_equal(admission_take(&a, key, 1), 0);
        assert_int_equal(admission_take(&a, key, 0), 0);
        assert_int_equal(admission_held(&a), 3);
        admission_give(&a, key, 3);
        assert_int_equal(admission_held(&a), 0);
    }
    admission_free(&a);
}

TEST(a_key_within_its_share_is_not_refused)
{
    struct admission a;
    admission_init(&a, CAPACITY);
    for (int i = 0; i < CAPACITY; i++)
        assert_true(admission_take(&a, 1, 1));
    assert_false(admission_take(&a, 1, 1));
    for (int i = 0; i < CAPACITY / 2; i++)
        assert_true(admission_take(&a, 2, 1));
    assert_false(admission_take(&a, 2, 1));
    assert_false(admission_take(&a, 1, 1));
    for (int i = 0; i < CAPACITY / 3; i++)
        assert_true(admission_take(&a, 3, 1));
    assert_false(admission_take(&a, 3, 1));
    admission_give(&a, 1, 64); /* the excess has not gone yet */
    assert_false(admission_take(&a, 1, 1));
    admission_give(&a, 1, 64);
    admission_give(&a, 2, 64);
    assert_int_equal(admission_take(&a, 3, CAPACITY), CAPACITY - CAPACITY / 3); /* alone */
    admission_give(&a, 3, CAPACITY);
    assert_int_equal(admission_held(&a), 0);
    admission_free(&a);
}

TEST(more_keys_than_permits_get_one_each)
{
    struct admission a;
    admission_init(&a, 4);
    for (uint64_t key = 0; key < 500; key++)
        assert_true(admission_take(&a, key * 64, 1)); /* of one bucket */
    assert_int_equal(admission_held(&a), 500);
    for (uint64_t key = 0; key < 500; key++)
        assert_false(admission_take(&a, key * 64, 1));
    for (uint64_t key = 0; key < 500; key++)
        admission_give(&a, key * 64, 1);
    assert_int_equal(admission_held(&a), 0);
    admission_free(&a);
}

/* A has 256 clients that ask again as soon as they are answered or refused, B has one. */
TEST(a_flood_does_not_starve)
{
    struct admission a;
    uint32_t running[2] = {0}, asked[2] = {0}, refused[2] = {0}, served[2] = {0};
    admission_init(&a, CAPACITY);
    for (int turn = 0; turn < 1000; turn++) {
        for (uint32_t i = running[0]; i < 256; i++, asked[0]++)
            admission_take(&a, 'A', 1) ? running[0]++ : refused[0]++;
        if (!running[1]) {
            asked[1]++;
            admission_take(&a, 'B', 1) ? running[1]++ : refused[1]++;
        }
        for (int k = 0; k < 2; k++) /* the oldest of each ends */
            if (running[k]) {
                admission_give(&a, (uint64_t)('A' + k), 1);
                running[k]--;
                served[k]++;
            }
        assert_true(admission_held(&a) <= CAPACITY + 1);
    }
    assert_int_equal(refused[1], 0);
    assert_int_equal(served[1], 1000);
    assert_int_equal(served[0], 1000);
    assert_true(refused[0] > 0);
    admission_give(&a, 'A', running[0]);
    admission_free(&a);
}

/* Any traffic: who is within its share is admitted, who is not is admitted while there is room, and
 * the excess stays within its bound. */
TEST(shares_hold_for_any_traffic)
{
    enum { KEYS = 7 };
    struct admission a;
    uint32_t held[KEYS] = {0}, all = 0, n = 0, bound = 0;
    uint64_t seed = 7;
    for (uint32_t i = 1; i <= KEYS; i++)
        bound += CAPACITY / i;
    admission_init(&a, CAPACITY);
    for (int step = 0; step < 200000; step++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t k = (uint32_t)(seed >> 33) % KEYS, want = (uint32_t)(seed >> 40) % 9 + 1;
        if ((seed >> 60) % 3 == 0) {
            uint32_t back = want < held[k] ? want : held[k];
            admission_give(&a, k, back);
            n -= back && back == held[k];
            held[k] -= back;
            all -= back;
        } else {
            uint32_t share = CAPACITY / (n + !held[k]), room = all < CAPACITY ? CAPACITY - all : 0;
            uint32_t rest = share > held[k] ? share - held[k] : 0, most = rest > room ? rest : room;
            uint32_t got = admission_take(&a, k, want);
            assert_int_equal(got, want < most ? want : most);
            n += got && !held[k];
            held[k] += got;
            all += got;
        }
        assert_int_equal(admission_held(&a), all);
        assert_true(all <= bound);
    }
    admission_free(&a);
}

int main(void) { return tests_run(NULL, NULL); }
