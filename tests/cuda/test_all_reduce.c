/*
 * Sums over the GPUs of one machine: a backend for each, each with a thread of its own. Two devices
 * are asked for; where there is only one, the tests of two say so and are left out. The virtual
 * device always has two.
 */
#include "tests/cuda/parity.h"

#include "base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda/virtual/runtime.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>

enum { RANKS = 2, REPLAYS = 3 };

/* Linked in with the virtual device only; the module does not show them. */
struct cuda_backend;
enum rc cuda_group_create(const struct cuda_backend_options *options, struct backend **first,
                          struct fault *why) __attribute__((weak));
void cuda_group_abort(struct cuda_backend *cuda) __attribute__((weak));
#pragma weak virtual_nccl_inside

uint64_t parity_checks;

static bool is_virtual(void)
{
    return cuda_group_create != NULL;
}

/* A backend on two devices, or skips the test. */
static struct backend *two_devices(bool is_bf16)
{
    struct fault why = {0};
    struct backend *first = parity_device(RANKS, is_bf16, &why);

    if (first != NULL) return first;
    if (is_virtual()) fail_msg("%s", why.text);
    parity_leave_out("two devices: %s", why.text);
    return NULL;
}

/* --- one device --------------------------------------------------------------------------------*/

static void leaves_values_alone(struct backend *backend)
{
    const float wanted[] = {1.5f, -2.0f, 3.25f};
    float got[ARRAY_COUNT(wanted)];
    float *x = backend->ops->alloc(backend, sizeof(wanted));

    assert_non_null(x);
    assert_int_equal(backend->ops->upload(backend, x, wanted, sizeof(wanted)), RC_OK);
    assert_int_equal(backend->ops->all_reduce(backend, x, ARRAY_COUNT(wanted)), RC_OK);
    assert_int_equal(backend->ops->download(backend, got, x, sizeof(got)), RC_OK);
    assert_memory_equal(got, wanted, sizeof(got));
    assert_true(backend->ops->sibling == NULL || backend->ops->sibling(backend) == NULL);
    backend->ops->free(backend, x);
}

static void one_device_alone_has_its_sum_already(void **state)
{
    struct fault why = {0};
    struct backend *backend = parity_device(1, false, &why);

    (void)state;
    assert_non_null(backend);
    assert_false(backend->is_apart);
    leaves_values_alone(backend);
    backend_destroy(backend);
}

static void a_group_of_one_has_its_sum_already(void **state)
{
    const struct cuda_backend_options options = {.devices = {0}, .devices_count = 1};
    struct backend *backend = NULL;
    struct fault why = {0};

    (void)state;
    if (!is_virtual()) parity_leave_out("the module makes no group of one");
    assert_int_equal(cuda_group_create(&options, &backend, &why), RC_OK);
    assert_int_equal(backend->threads, 1);
    leaves_values_alone(backend);
    backend_destroy(backend);
}

/* --- two devices -------------------------------------------------------------------------------*/

static void the_first_backend_hands_out_each_other_once(void **state)
{
    struct backend *first = two_devices(true), *second;

    (void)state;
    assert_true(first->is_apart);
    assert_int_equal(first->threads, RANKS);
    second = first->ops->sibling(first);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    assert_int_equal(second->threads, 1);
    assert_int_equal(second->value_bytes, first->value_bytes);
    assert_null(first->ops->sibling(first));
    backend_destroy(second);
    backend_destroy(first);
}

static void a_backend_that_nobody_asked_for_goes_with_the_first(void **state)
{
    uint64_t blocks = mem_blocks();

    (void)state;
    backend_destroy(two_devices(false));
    assert_int_equal(mem_blocks(), blocks);
}

static void the_first_backend_may_go_before_the_others(void **state)
{
    uint64_t blocks = mem_blocks();
    struct backend *first = two_devices(false), *second = first->ops->sibling(first);

    (void)state;
    assert_non_null(second);
    backend_destroy(first);
    backend_destroy(second);
    assert_int_equal(mem_blocks(), blocks);
}

/* One rank's part, on a thread of its own. */
struct rank {
    struct backend *backend;
    size_t n;
    float *values; /* in and out */
    bool is_recorded, in_parts;
    enum rc rc;
};

/* In parts: each begins when what it is of is there, beside the making of the next. */
static enum rc sum(struct backend *b, bool in_parts, float *x, size_t n)
{
    size_t middle = n / 2;
    enum rc rc;

    if (!in_parts) return b->ops->all_reduce(b, x, n);
    rc = b->ops->scale(b, 2.0f, x + middle, n - middle);
    if (rc == RC_OK) rc = b->ops->scale(b, 0.5f, x + middle, n - middle);
    if (rc == RC_OK) rc = b->ops->all_reduce_begin(b, x + middle, n - middle);
    if (rc == RC_OK) rc = b->ops->scale(b, 4.0f, x, middle);
    if (rc == RC_OK) rc = b->ops->scale(b, 0.25f, x, middle);
    if (rc == RC_OK) rc = b->ops->all_reduce_begin(b, x, middle);
    return rc == RC_OK ? b->ops->all_reduce_end(b) : rc;
}

/* x = (sum over ranks) / 2, first as calls and then REPLAYS times as a graph. */
static enum rc sum_recorded(struct backend *b, bool in_parts, float *x, size_t n)
{
    struct recording *recording = NULL;
    enum rc rc = sum(b, in_parts, x, n), ended;

    if (rc == RC_OK) rc = b->ops->scale(b, 0.5f, x, n);
    if (rc == RC_OK) rc = b->ops->record_begin(b);
    if (rc != RC_OK) return rc;
    rc = sum(b, in_parts, x, n);
    if (rc == RC_OK) rc = b->ops->scale(b, 0.5f, x, n);
    ended = b->ops->record_end(b, rc == RC_OK ? &recording : NULL);
    if (rc == RC_OK) rc = ended;
    for (int i = 0; rc == RC_OK && i < REPLAYS; i++) {
        rc = b->ops->replay(b, recording);
    }
    if (rc == RC_OK) rc = b->ops->pace(b);
    if (rc == RC_OK) rc = b->ops->pace(b);
    if (recording != NULL) b->ops->recording_destroy(b, recording);
    return rc;
}

static void *rank_run(void *context)
{
    struct rank *rank = context;
    struct backend *b = rank->backend;
    size_t bytes = rank->n * sizeof(float);
    float *x;

    b->ops->bind_thread(b);
    x = b->ops->alloc(b, bytes);
    rank->rc = x != NULL ? b->ops->upload(b, x, rank->values, bytes) : RC_NOMEM;
    if (rank->rc == RC_OK) {
        rank->rc = rank->is_recorded ? sum_recorded(b, rank->in_parts, x, rank->n)
                                     : sum(b, rank->in_parts, x, rank->n);
    }
    if (rank->rc == RC_OK) rank->rc = b->ops->download(b, rank->values, x, bytes);
    b->ops->free(b, x);
    return NULL;
}

static void run_both(struct rank ranks[RANKS])
{
    pthread_t other;

    assert_int_equal(pthread_create(&other, NULL, rank_run, &ranks[1]), 0);
    rank_run(&ranks[0]);
    assert_int_equal(pthread_join(other, NULL), 0);
    for (int i = 0; i < RANKS; i++) {
        if (ranks[i].rc == RC_OK) continue;
        fail_msg("rank %d: %s: %s", i, rc_text(ranks[i].rc),
                 ranks[i].backend->ops->why(ranks[i].backend));
    }
}

static void compare_sums(uint64_t seed, size_t n, bool is_recorded, bool in_parts)
{
    struct backend *first = two_devices(false);
    struct rank ranks[RANKS] = {
        {.backend = first, .n = n, .is_recorded = is_recorded, .in_parts = in_parts},
        {.n = n, .is_recorded = is_recorded, .in_parts = in_parts}};
    float *wanted = malloc(n * sizeof(*wanted));
    struct rng rng;

    rng_init(&rng, seed, n);
    ranks[1].backend = first->ops->sibling(first);
    assert_non_null(ranks[1].backend);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].values = malloc(n * sizeof(float));
        for (size_t j = 0; j < n; j++) {
            ranks[i].values[j] = (float)rng_normal(&rng);
        }
    }
    for (size_t j = 0; j < n; j++) {
        wanted[j] = ranks[0].values[j] + ranks[1].values[j];
        if (is_recorded) wanted[j] *= 0.5f; /* and the sum of equal halves is what it was */
    }
    run_both(ranks);
    assert_memory_equal(ranks[0].values, ranks[1].values, n * sizeof(float));
    check_seed(seed, parity_error(ranks[0].values, wanted, n) <= 1e-6);
    parity_checks++;
    free(ranks[0].values);
    free(ranks[1].values);
    free(wanted);
    backend_destroy(ranks[1].backend);
    backend_destroy(first);
}

static void the_sum_is_right_and_the_same_on_both(void **state)
{
    const size_t sizes[] = {1, 7, 1000, 100003};

    (void)state;
    FOR_EACH_SEED (seed, 3) {
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            compare_sums(seed, sizes[i], false, false);
            compare_sums(seed, sizes[i], false, true);
        }
    }
}

static void recorded_sums_meet_at_each_replay(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 3) {
        compare_sums(seed, 5000, true, false);
        compare_sums(seed, 5000, true, true);
    }
}

static void *rank_wait(void *context)
{
    struct rank *rank = context;
    struct backend *b = rank->backend;
    float *x, value;

    b->ops->bind_thread(b);
    x = b->ops->alloc(b, sizeof(float));
    rank->rc = b->ops->all_reduce(b, x, 1);
    if (rank->rc == RC_OK) rank->rc = b->ops->download(b, &value, x, sizeof(value)); /* waits */
    if (rank->rc == RC_OK) rank->rc = b->ops->all_reduce(b, x, 1);
    b->ops->free(b, x);
    return NULL;
}

static void a_rank_that_fails_does_not_leave_the_others_waiting(void **state)
{
    struct backend *first = two_devices(false), *second = first->ops->sibling(first);
    struct rank rank = {.backend = first};
    pthread_t thread;

    (void)state;
    assert_non_null(second);
    if (is_virtual()) {
        assert_int_equal(pthread_create(&thread, NULL, rank_wait, &rank), 0);
        cuda_group_abort((struct cuda_backend *)second);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(rank.rc, RC_DEVICE);
        assert_string_not_equal(first->ops->why(first), "");
    }
    backend_destroy(second);
    backend_destroy(first);
}

static sem_t is_inside;

/* Nor those that wait for sums beside their calls. */
static void *rank_wait_beside(void *context)
{
    struct rank *rank = context;
    struct backend *b = rank->backend;
    float *x, value;

    b->ops->bind_thread(b);
    x = b->ops->alloc(b, sizeof(float));
    rank->rc = b->ops->all_reduce_begin(b, x, 1);
    if (rank->rc == RC_OK) rank->rc = b->ops->all_reduce_end(b);
    if (rank->rc == RC_OK) rank->rc = b->ops->download(b, &value, x, sizeof(value)); /* waits */
    if (rank->rc == RC_OK) rank->rc = b->ops->all_reduce_begin(b, x, 1);
    b->ops->free(b, x);
    return NULL;
}

static void a_rank_that_does_not_come_lets_the_others_go(void **state)
{
    struct backend *first = two_devices(false), *second = first->ops->sibling(first);
    struct rank rank = {.backend = first};
    pthread_t thread;

    (void)state;
    assert_non_null(second);
    if (is_virtual()) {
        assert_int_equal(pthread_create(&thread, NULL, rank_wait_beside, &rank), 0);
        second->ops->all_reduce_abort(second);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(rank.rc, RC_DEVICE);
    }
    backend_destroy(second);
    backend_destroy(first);
}

/* Time enough for an abort that does not wait; the virtual device ends the program then. */
static void stay_inside(void)
{
    sem_post(&is_inside);
    (void)poll(NULL, 0, 100);
}

/* What frees a communicator lets the call out that another thread is in with it. */
static void an_abort_waits_for_a_call_that_goes_on(void **state)
{
    struct backend *first, *second;
    struct rank rank = {0};
    pthread_t thread;

    (void)state;
    if (!is_virtual()) parity_leave_out("only the virtual device stays in a call");
    rank.backend = first = two_devices(false);
    second = first->ops->sibling(first);
    sem_init(&is_inside, 0, 0);
    virtual_nccl_inside = stay_inside;
    assert_int_equal(pthread_create(&thread, NULL, rank_wait, &rank), 0);
    sem_wait(&is_inside);
    cuda_group_abort((struct cuda_backend *)second);
    assert_int_equal(pthread_join(thread, NULL), 0);
    virtual_nccl_inside = NULL;
    assert_int_equal(rank.rc, RC_DEVICE);
    backend_destroy(second);
    backend_destroy(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_alone_has_its_sum_already),
        cmocka_unit_test(a_group_of_one_has_its_sum_already),
        cmocka_unit_test(the_first_backend_hands_out_each_other_once),
        cmocka_unit_test(a_backend_that_nobody_asked_for_goes_with_the_first),
        cmocka_unit_test(the_first_backend_may_go_before_the_others),
        cmocka_unit_test(the_sum_is_right_and_the_same_on_both),
        cmocka_unit_test(recorded_sums_meet_at_each_replay),
        cmocka_unit_test(a_rank_that_fails_does_not_leave_the_others_waiting),
        cmocka_unit_test(a_rank_that_does_not_come_lets_the_others_go),
        cmocka_unit_test(an_abort_waits_for_a_call_that_goes_on),
    };

    setenv("VIRTUAL_DEVICE_COUNT", "2", 1); /* real devices are those that there are */
    return parity_main("all_reduce", tests, ARRAY_COUNT(tests));
}
