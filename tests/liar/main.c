/*
 * liar: `grapevine peer` that lies in one way, named by the environment variable LIE; the rest of
 * it is the shipping program, peer/main.c included. Without LIE it is honest. `liar lies` lists the
 * names, each with the exchanges it is of use against. For tests/bench/one_liar.sh and
 * tests/e2e/test_liars.sh.
 */
#include "tests/sim/lies.h"

__typeof__(node_create) __real_node_create, __wrap_node_create;
int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

enum rc __wrap_node_create(struct env *env, struct learner *learner,
                           const struct node_options *options, const struct node_events *events,
                           struct node **node, struct fault *why)
{
    const char *name = getenv("LIE");
    const struct evil_behaviour *behaviour = name == NULL ? NULL : lies_find(name);
    enum rc rc;

    if (name != NULL && behaviour == NULL) return fault_set(why, RC_USAGE, "LIE=%s: no such", name);
    rc = __real_node_create(env, learner, options, events, node, why);
    if (rc == RC_OK && behaviour != NULL) evil_begin(*node, behaviour);
    return rc;
}

static void list(void)
{
    static const char *const exchanges[] = {"group", "pair", "edges", "mirror", "push"};

    for (size_t i = 0; i < ARRAY_COUNT(lies); i++) {
        printf("%s", lies[i].name);
        for (unsigned k = 0; k < ARRAY_COUNT(exchanges); k++) {
            if ((lies[i].exchanges >> k & 1) != 0) printf(" %s", exchanges[k]);
        }
        printf("\n");
    }
}

int __wrap_main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "lies") == 0) {
        list();
        return 0;
    }
    return __real_main(argc, argv);
}
