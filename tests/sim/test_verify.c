/*
 * --verify among complete peers with real networks: who trains is never accused, whatever happens
 * to it, and who does not is found, whatever it makes of its model instead.
 */
#include "tests/check.h"

#include "base/blob.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "peer/link/link.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/learners/replica.h"
#include "tests/sim/lazy.h"
#include "tests/sim/swarm.h"

enum { PEERS = 4 };

struct crew {
    struct backend *backend;
    enum lie lie; /* of the last peer */
};

/* Learners have no context of their own. */
static struct crew crew;

static struct learner *enlist(void *context, uint32_t peer)
{
    const struct replica_options options = {.model = "linear:16 relu linear:classes",
                                            .data = "digits",
                                            .batch = 16,
                                            .prefetch = PREFETCH_OFF,
                                            .seed = 1,
                                            .stream_seed = peer + 1};
    struct learner *learner = NULL;
    struct fault why = {""};

    (void)context;
    if (replica_create(crew.backend, &options, &learner, &why) != RC_OK) fail_msg("%s", why.text);
    if (peer == PEERS - 1) lazy_make(learner, crew.lie);
    return learner;
}

static struct cluster *muster(uint64_t seed, enum lie lie, double verify, const char *averaging)
{
    const struct cluster_options options = {.peers = PEERS,
                                            .seed = seed,
                                            .averaging = averaging,
                                            .topology = "complete",
                                            .start_with = PEERS,
                                            .latency_ns = NS_PER_MS,
                                            .step_cost_ns = 10 * NS_PER_MS,
                                            .verify = verify,
                                            .values = 1210,
                                            .learner = enlist};

    crew.lie = lie;
    return cluster_create(&options);
}

static void dismiss(struct cluster *cluster)
{
    cluster_destroy(cluster);
    lazy_forget();
}

static uint64_t told(struct cluster *cluster, uint32_t peer, const char *key)
{
    struct json *status = node_status(cluster_node(cluster, peer), 0);
    uint64_t count;

    assert_true(json_get_count(status, key, &count));
    json_destroy(status);
    return count;
}

static uint64_t sum(struct cluster *cluster, uint32_t peers, const char *key)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < peers; i++) {
        all += told(cluster, i, key);
    }
    return all;
}

/* Over who is up. */
static uint64_t sum_up(struct cluster *cluster, const char *key)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < PEERS; i++) {
        if (cluster_is_up(cluster, i)) all += told(cluster, i, key);
    }
    return all;
}

static void who_trains_is_never_accused(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 3) {
        struct cluster *cluster = muster(seed, HONEST, 1, "local-sgd:H=8");

        swarm_start(cluster, PEERS);
        cluster_run(cluster, 20 * NS_PER_S);
        if (getenv("VERBOSE") != NULL) {
            fprintf(stderr,
                    "seed %llu: rounds %llu equal %llu unlike %llu refused %llu missed %llu "
                    "unclear %llu\n",
                    (unsigned long long)seed,
                    (unsigned long long)swarm_report(cluster, 0).rounds_ok,
                    (unsigned long long)sum(cluster, PEERS, "verify_equal"),
                    (unsigned long long)sum(cluster, PEERS, "verify_unlike"),
                    (unsigned long long)sum(cluster, PEERS, "verify_refused"),
                    (unsigned long long)sum(cluster, PEERS, "verify_missed"),
                    (unsigned long long)sum(cluster, PEERS, "verify_unclear"));
        }
        check_seed(seed, sum(cluster, PEERS, "verify_unlike") == 0);
        check_seed(seed, sum(cluster, PEERS, "verify_equal") > 20);
        check_seed(seed, told(cluster, 0, "verify_members") == PEERS - 1);
        dismiss(cluster);
    }
}

/* One joins late, one dies again and again and goes on from its checkpoint, one leaves: models are
 * fetched, rounds missed, cut, refused. */
static void nor_whatever_happens_to_it(void **state)
{
    const uint32_t first = 0;

    (void)state;
    FOR_EACH_SEED (seed, 4) {
        struct cluster *cluster = muster(seed, HONEST, 1, "local-sgd:H=8");
        uint64_t equal = 0;
        struct rng rng;

        rng_init(&rng, seed, 9);
        if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
        for (uint32_t i = 0; i < PEERS - 1; i++) {
            cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
        }
        for (int life = 0; life < 6; life++) {
            const uint32_t who = 1 + (uint32_t)rng_below(&rng, 2);

            cluster_run(cluster, NS_PER_S + rng_below(&rng, NS_PER_S));
            if (life == 1) cluster_start(cluster, PEERS - 1, &first, 1);
            check_seed(seed, sum_up(cluster, "verify_unlike") == 0);
            cluster_crash(cluster, who);
            if (life == 4) cluster_lose(cluster, who);
            cluster_run(cluster, rng_below(&rng, 3 * NS_PER_S));
            cluster_start(cluster, who, &first, 1);
        }
        cluster_stop(cluster, 2);
        cluster_run(cluster, 10 * NS_PER_S);
        equal = sum_up(cluster, "verify_equal");
        check_seed(seed, sum_up(cluster, "verify_unlike") == 0);
        check_seed(seed, equal > 20);
        dismiss(cluster);
    }
}

static bool is_found(struct cluster *cluster, void *unused)
{
    (void)unused;
    return sum(cluster, PEERS - 1, "verify_unlike") > 0;
}

/* VERIFY=P: with another share. */
static void who_does_not_train_is_found(void **state)
{
    const char *share = getenv("VERIFY");
    const double verify = share == NULL ? 0.5 : strtod(share, NULL);

    (void)state;
    for (enum lie lie = SLEEPS; lie < LIES; lie++) {
        FOR_EACH_SEED (seed, 2) {
            struct cluster *cluster = muster(seed, lie, verify, "local-sgd:H=8");
            bool is_known;

            swarm_start(cluster, PEERS);
            is_known = cluster_run_until(cluster, is_found, NULL, 60 * NS_PER_S);
            if (!is_known) fprintf(stderr, "not found: %s\n", lazy_name(lie));
            check_seed(seed, is_known);
            if (getenv("VERBOSE") != NULL) {
                fprintf(stderr, "%s: round %llu\n", lazy_name(lie),
                        (unsigned long long)swarm_report(cluster, 0).rounds_ok);
            }
            dismiss(cluster);
        }
    }
}

/* However long the intervals are that others claim, no repeat is begun that there is no time for.
 */
static void repeats_take_no_more_than_twice_their_share(void **state)
{
    const double share = 0.1;

    (void)state;
    FOR_EACH_SEED (seed, 3) {
        struct cluster *cluster = muster(seed, HONEST, share, "local-sgd:H=256");

        swarm_start(cluster, PEERS);
        for (int second = 1; second <= 60; second++) {
            cluster_run(cluster, NS_PER_S);
            for (uint32_t i = 0; i < PEERS; i++) {
                struct json *status = node_status(cluster_node(cluster, i), 0);
                double spent;

                assert_true(json_get_real(status, "verify_repeat_s", &spent));
                json_destroy(status);
                check_seed(seed, spent <= 1.05 * 2 * share * second);
            }
        }
        check_seed(seed, sum(cluster, PEERS, "verify_equal") > 0);
        dismiss(cluster);
    }
}

/* ---- what is shown is anybody's bytes ---- */

static struct {
    struct rng rng;
    bool is_on;
    bool refuses; /* all, and whatever is asked for */
    uint64_t changed;
} garbler;

enum rc __real_links_send(struct links *links, struct peer_id to, const struct message *message);
enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message);

static uint64_t odd_number(void)
{
    static const uint64_t odd[] = {
        0, 1, 39, 40, 65536, UINT32_MAX, UINT64_MAX, UINT64_MAX / 4, UINT64_MAX - 39};

    return odd[rng_below(&garbler.rng, ARRAY_COUNT(odd))];
}

/* One thing of each REVEAL, or none, is another one. */
enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message)
{
    static uint8_t bytes[REVEAL_BYTES_MAX];
    struct message lie = *message;
    struct message_reveal *reveal = &lie.as.reveal;

    if (garbler.refuses && message->type == MESSAGE_REVEAL) {
        *reveal = (struct message_reveal){
            .code = REVEAL_GONE, .number = message->as.reveal.number, .at = message->as.reveal.at};
        return __real_links_send(links, to, &lie);
    }
    if (!garbler.is_on || message->type != MESSAGE_REVEAL || reveal->bytes_bytes == 0) {
        return __real_links_send(links, to, message);
    }
    garbler.changed++;
    memcpy(bytes, reveal->bytes, reveal->bytes_bytes);
    reveal->bytes = bytes;
    switch (rng_below(&garbler.rng, 8)) {
    case 0:
        reveal->total = odd_number();
        break;
    case 1:
        reveal->at = odd_number();
        break;
    case 2:
        reveal->bytes_bytes = (uint32_t)rng_below(&garbler.rng, reveal->bytes_bytes);
        break;
    case 3: /* a word of the head */
        store_le64(bytes + 8 * rng_below(&garbler.rng, 5), odd_number());
        break;
    case 4:
        reveal->code = 1 + (uint32_t)rng_below(&garbler.rng, 2);
        break;
    case 5:
        memset(bytes, 0xff, reveal->bytes_bytes);
        break;
    case 6:
        reveal->number = 1 + odd_number() % 1000;
        break;
    default:
        bytes[rng_below(&garbler.rng, reveal->bytes_bytes)] ^= 1;
    }
    return __real_links_send(links, to, &lie);
}

/* Whatever comes, nobody falls, rounds go on, and no check is stuck. */
static void hostile_bytes_cost_nobody_but_who_sends_them(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 2) {
        struct cluster *cluster = muster(seed, HONEST, 1, "local-sgd:H=8");
        uint64_t rounds;

        rng_init(&garbler.rng, seed, 7);
        garbler.changed = 0;
        swarm_start(cluster, PEERS);
        cluster_run(cluster, 2 * NS_PER_S);
        garbler.is_on = true;
        cluster_run(cluster, 3 * NS_PER_S);
        garbler.is_on = false;
        check_seed(seed, garbler.changed > 3);
        for (uint32_t i = 0; i < PEERS; i++) {
            check_seed(seed, cluster_is_up(cluster, i));
        }
        rounds = sum(cluster, PEERS, "verify_equal");
        cluster_run(cluster, 25 * NS_PER_S); /* pauses end, and what waited was given up */
        check_seed(seed, sum(cluster, PEERS, "verify_equal") > rounds);
        dismiss(cluster);
    }
}

/* It is held against nobody, and each of them can be seen. */
static void who_shows_nothing_can_be_seen(void **state)
{
    struct cluster *cluster = muster(1, HONEST, 1, "local-sgd:H=8");
    struct json *status;
    char *text;

    (void)state;
    garbler.refuses = true;
    swarm_start(cluster, PEERS);
    cluster_run(cluster, 10 * NS_PER_S);
    garbler.refuses = false;
    assert_int_equal(sum(cluster, PEERS, "verify_unlike"), 0);
    assert_int_equal(sum(cluster, PEERS, "verify_equal"), 0);
    assert_true(told(cluster, 0, "verify_refused") > PEERS);
    status = node_status(cluster_node(cluster, 0), PEERS);
    text = json_format(status);
    assert_non_null(strstr(text, "\"verify_not_shown\":"));
    assert_null(strstr(text, "\"verify_not_shown\":0"));
    mem_free(text);
    json_destroy(status);
    dismiss(cluster);
}

/* ---- one that tells each another result ---- */

static struct {
    bool is_on; /* whoever owns the model's one part in a round */
    uint64_t changed;
} two_tongues;

enum rc __real_links_send_bulk(struct links *links, struct peer_id to,
                               const struct inner_header *header, struct blob *body);
enum rc __wrap_links_send_bulk(struct links *links, struct peer_id to,
                               const struct inner_header *header, struct blob *body);

/* Of the mean of its part, to each the last bits are others: no guard is to mind that. */
enum rc __wrap_links_send_bulk(struct links *links, struct peer_id to,
                               const struct inner_header *header, struct blob *body)
{
    struct blob *lie;
    enum rc rc;

    if (!two_tongues.is_on || header->flags != DATA_MEAN) {
        return __real_links_send_bulk(links, to, header, body);
    }
    lie = blob_copy(body->bytes, body->count);
    if (lie == NULL) return RC_NOMEM;
    two_tongues.changed++;
    for (size_t i = 0; i + 4 <= lie->count; i += 4) {
        lie->bytes[i] ^= (uint8_t)(1 + two_tongues.changed % 7);
    }
    rc = __real_links_send_bulk(links, to, header, lie);
    blob_unref(lie);
    return rc;
}

/* Honest members come to unlike models by that, and hold it against nobody. */
static void who_tells_each_another_result_has_nobody_accused(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 2) {
        struct cluster *cluster = muster(seed, HONEST, 1, "local-sgd:H=8");
        uint64_t equal, rounds;

        two_tongues.changed = 0;
        swarm_start(cluster, PEERS);
        cluster_run(cluster, 2 * NS_PER_S);
        two_tongues.is_on = true;
        rounds = swarm_report(cluster, 1).rounds_ok;
        cluster_run(cluster, 10 * NS_PER_S);
        check_seed(seed, two_tongues.changed > 10);
        check_seed(seed, swarm_report(cluster, 1).rounds_ok > rounds + 5);
        check_seed(seed, sum(cluster, PEERS, "verify_unlike") == 0);
        check_seed(seed, sum(cluster, PEERS, "verify_unclear") > 0);
        two_tongues.is_on = false;
        equal = sum(cluster, PEERS, "verify_equal");
        cluster_run(cluster, 10 * NS_PER_S); /* and once it is over all are checked again */
        check_seed(seed, sum(cluster, PEERS, "verify_equal") > equal + 10);
        check_seed(seed, sum(cluster, PEERS, "verify_unlike") == 0);
        dismiss(cluster);
    }
}

static int open_crew(void **state)
{
    const struct cpu_backend_options options = {.threads = 1};

    (void)state;
    crew.backend = cpu_backend_create(&options);
    return crew.backend == NULL;
}

static int close_crew(void **state)
{
    (void)state;
    backend_destroy(crew.backend);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_trains_is_never_accused),
        cmocka_unit_test(nor_whatever_happens_to_it),
        cmocka_unit_test(who_does_not_train_is_found),
        cmocka_unit_test(repeats_take_no_more_than_twice_their_share),
        cmocka_unit_test(hostile_bytes_cost_nobody_but_who_sends_them),
        cmocka_unit_test(who_shows_nothing_can_be_seen),
        cmocka_unit_test(who_tells_each_another_result_has_nobody_accused),
    };

    return cmocka_run_group_tests(tests, open_crew, close_crew);
}
