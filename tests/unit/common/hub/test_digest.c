// Digests as the hub gives them; the expected ones are sha256sum's and `git hash-object`'s.
#include "common/hub/digest.h"
#include "tests/unit/test.h"
#include <string.h>

static bool matches(const char *etag, const char *text)
{
    struct digest d;
    struct err e = ERR_INIT;
    size_t n = strlen(text), half = n / 2;
    assert_int_equal(digest_begin(&d, etag, (int64_t)n, &e), 0);
    digest_add(&d, text, half);
    digest_add(&d, text + half, n - half);
    return digest_matches(&d, etag);
}

TEST(known)
{
    const char *sha256 = "a948904f2f0f479b8f8197694b30184b0d2ed1c1cd2a1ec0fb85d299a192a447";
    const char *git = "3b18e512dba79e4c8300dd08aeb37f8e728b8dad";
    assert_true(matches(sha256, "hello world\n"));
    assert_true(matches(git, "hello world\n"));
    assert_false(matches(sha256, "hello world"));
    assert_false(matches(git, "hello World\n"));
    assert_true(matches("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", "")); /* git's empty blob */
    assert_true(matches("not-a-digest", "anything"));
}

TEST(dropped)
{
    struct digest d;
    struct err e = ERR_INIT;
    digest_begin(&d, "3b18e512dba79e4c8300dd08aeb37f8e728b8dad", 3, &e);
    digest_drop(&d);
    digest_drop(&d);
}

int main(void) { return tests_run(NULL, NULL); }
