/*
 * liar: `grapevine peer` that lies in one way, named by the environment variable LIE; the rest of
 * it is the shipping program, peer/main.c included. Without LIE it is honest. `liar lies` lists the
 * names, each with the exchanges it is of use against. For tests/bench/one_liar.sh and
 * tests/e2e/test_liars.sh. LIE_PREDICTIONS is what it does with who asks for predictions, for
 * tests/e2e/test_distill_swarm.sh: `wrong` (of each prediction another class, and sure of it) or
 * `rubbish` (no probabilities).
 */
#include "tests/sim/lies.h"

#include "distill/predictions.h"

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

__typeof__(predictions_encode) __real_predictions_encode, __wrap_predictions_encode;

void __wrap_predictions_encode(const struct predictions_shape *shape, const float *values,
                               size_t samples, uint8_t *out)
{
    const char *lie = getenv("LIE_PREDICTIONS");
    const size_t count = samples * shape->rows * shape->outputs;
    float *said = mem_array(count, sizeof *said);

    CHECK(said != NULL);
    for (size_t row = 0; row < samples * shape->rows; row++) {
        const float *from = values + row * shape->outputs;
        uint32_t best = 0;

        for (uint32_t c = 1; c < shape->outputs; c++) {
            if (from[c] > from[best]) best = c;
        }
        said[row * shape->outputs + (best + 1) % shape->outputs] = 1;
    }
    __real_predictions_encode(shape, lie != NULL ? said : values, samples, out);
    if (lie != NULL && strcmp(lie, "rubbish") == 0) {
        memset(out, 0x3c, samples * predictions_bytes(shape));
    }
    mem_free(said);
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
