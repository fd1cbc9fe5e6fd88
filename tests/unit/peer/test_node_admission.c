/* Who may be linked with a node, by its lists and by where it is. */
#include "tests/check.h"

#include "base/mem.h"
#include "peer/node/door/internal.h"

static uint64_t now_ns(struct env *env)
{
    (void)env;
    return 1000 * NS_PER_S;
}

static uint64_t wall_s(void)
{
    return 1000;
}

static const struct env_ops ops = {.now_ns = now_ns};

static enum rc entry(enum hello_role role, const char *address, bool is_dialled)
{
    struct admission nobody = {.has_allow = true};
    struct hello hello = {.role = role};
    struct env env = {.ops = &ops};
    struct node *node = mem_alloc(sizeof *node);
    struct fault why;
    enum rc rc;

    assert_non_null(node);
    node->env = &env;
    node->trust = trust_create();
    node->options.admission = &nobody;
    node->options.wall_s = wall_s;
    rc = door_on_entry(node, (struct peer_id){{1}}, &hello, address, is_dialled, &why);
    trust_destroy(node->trust);
    mem_free(node);
    return rc;
}

/* The lists hold for all but an observer that connected from this machine. What a name begins with
 * says nothing, nor does where a peer was led to dial. */
static void the_lists_hold_for_all_but_the_owner(void **state)
{
    (void)state;
    assert_int_equal(entry(HELLO_OBSERVER, "127.0.0.1:4711", false), RC_OK);
    assert_int_equal(entry(HELLO_OBSERVER, "[::1]:4711", false), RC_OK);
    assert_int_equal(entry(HELLO_OBSERVER, "[::ffff:127.0.0.1]:4711", false), RC_OK);
    assert_int_equal(entry(HELLO_OBSERVER, "127.0.0.1:4711", true), RC_REFUSED);
    assert_int_equal(entry(HELLO_OBSERVER, "127.x.evil.example:80", true), RC_REFUSED);
    assert_int_equal(entry(HELLO_OBSERVER, "127.x.evil.example:80", false), RC_REFUSED);
    assert_int_equal(entry(HELLO_OBSERVER, "192.0.2.1:4711", false), RC_REFUSED);
    assert_int_equal(entry(HELLO_PEER, "127.0.0.1:4711", false), RC_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lists_hold_for_all_but_the_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
