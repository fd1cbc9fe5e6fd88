/*
 * Recurrent layers. Limits: float32 1e-5: sums in another order, over a few steps. With bfloat16
 * what comes out is rounded (1.1e-3, in norm), products are of TF32 values, and the way back begins
 * with rounded outputs: 1.5e-2.
 */
#include "tests/cuda/parity.h"

#include "base/check.h"

#define LIMIT      1e-5
#define LIMIT_BF16 1.5e-2

enum { PARAMETERS = 4 };
static const char *const names[PARAMETERS] = {"dinput", "dhidden", "dbias_input", "dbias_hidden"};

static uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

static bool is_one_in(struct rng *rng, uint64_t n)
{
    return rng_below(rng, n) == 0;
}

static struct recurrent_options some_options(struct rng *rng, enum recurrent_kind kind)
{
    return (struct recurrent_options){
        .kind = kind,
        .in = between(rng, 1, 40),
        .hidden = between(rng, 1, 50),
        .steps = between(rng, 1, 9),
        .samples_max = between(rng, 1, 21),
        .truncate = between(rng, 0, 4),
        .with_gradients = true,
        .with_input_gradient = !is_one_in(rng, 4),
    };
}

/* A layer on both sides with its parameters. */
struct scene {
    struct recurrent_options options;
    struct recurrent *device, *host;
    size_t counts[PARAMETERS];
    float *parameters[PARAMETERS];
};

static void scene_prepare(struct parity *p, struct scene *s)
{
    struct recurrent_weights host, device;
    float *there[PARAMETERS];
    double size = 1.0 / sqrt((double)s->options.hidden);

    for (size_t i = 0; i < PARAMETERS; i++) { /* somewhere in a plane */
        s->parameters[i] = parity_values(p, s->counts[i] + 1, size);
        there[i] = parity_put_values(p, s->parameters[i], s->counts[i] + 1) + 1;
        s->parameters[i]++;
    }
    host = (struct recurrent_weights){s->parameters[0], s->parameters[1], s->parameters[2],
                                      s->parameters[3]};
    device = (struct recurrent_weights){there[0], there[1], there[2], there[3]};
    parity_ok(p, s->device->ops->prepare(s->device, &device));
    parity_ok(p, s->host->ops->prepare(s->host, &host));
}

static void scene_create(struct parity *p, struct scene *s)
{
    const struct recurrent_options *o = &s->options;
    size_t rows = (size_t)recurrent_gates(o->kind) * o->hidden;

    s->counts[0] = rows * o->in;
    s->counts[1] = rows * o->hidden;
    s->counts[2] = s->counts[3] = rows;
    parity_ok(p, p->device->ops->recurrent_create(p->device, o, &s->device));
    parity_ok(p, p->host->ops->recurrent_create(p->host, o, &s->host));
    scene_prepare(p, s);
}

static void scene_destroy(struct scene *s)
{
    s->device->ops->destroy(s->device);
    s->host->ops->destroy(s->host);
}

/* A batch, and what a forward pass leaves of it. */
struct batch {
    uint32_t samples;
    size_t x_count, y_count;
    float *x, *y, *x_there, *y_there, *saved;
};

static void check_forward(struct parity *p, uint64_t seed, struct scene *s, uint32_t samples,
                          bool is_saved, struct batch *b)
{
    const struct recurrent_options *o = &s->options;

    b->samples = samples;
    b->x_count = (size_t)samples * o->steps * o->in;
    b->y_count = (size_t)samples * o->steps * o->hidden;
    b->x = parity_activations(p, b->x_count, 1.0);
    b->x_there = parity_put_activations(p, b->x, b->x_count);
    b->y = parity_host(p, b->y_count * sizeof(float));
    b->y_there = parity_room(p, b->y_count);
    b->saved = NULL;
    if (is_saved) b->saved = parity_block(p, samples * s->device->saved_values * sizeof(float));
    parity_ok(p, s->device->ops->forward(s->device, samples, b->x_there, b->y_there, b->saved));
    parity_ok(p, s->host->ops->forward(s->host, samples, b->x, b->y, NULL));
    parity_check_activations(p, seed, "y", b->y_there, b->y, b->y_count, LIMIT, LIMIT_BF16);
}

static void check_backward(struct parity *p, uint64_t seed, struct scene *s, struct batch *b)
{
    bool is_first = is_one_in(&p->rng, 2), adds = is_one_in(&p->rng, 2);
    bool wants_dx = s->options.with_input_gradient;
    float *dy = parity_activations(p, b->y_count, 1.0);
    float *dx = parity_activations(p, b->x_count, 1.0);
    float *here[PARAMETERS], *there[PARAMETERS];
    struct recurrent_backward host = {
        .samples = b->samples,
        .x = b->x,
        .y = b->y,
        .dy = dy,
        .dx = wants_dx ? dx : NULL,
        .adds_to_dx = adds,
        .is_first = is_first,
    };
    struct recurrent_backward device = host;

    for (size_t i = 0; i < PARAMETERS; i++) {
        here[i] = parity_values(p, s->counts[i], 1.0);
        there[i] = is_first ? parity_block(p, s->counts[i] * sizeof(float))
                            : parity_put_values(p, here[i], s->counts[i]);
    }
    device.x = b->x_there;
    device.y = b->y_there;
    device.saved = b->saved;
    device.dy = parity_put_activations(p, dy, b->y_count);
    if (wants_dx) {
        device.dx = adds ? parity_put_activations(p, dx, b->x_count) : parity_room(p, b->x_count);
    }
    host.dinput = here[0], host.dhidden = here[1];
    host.dbias_input = here[2], host.dbias_hidden = here[3];
    device.dinput = there[0], device.dhidden = there[1];
    device.dbias_input = there[2], device.dbias_hidden = there[3];
    parity_ok(p, s->device->ops->backward(s->device, &device));
    parity_ok(p, s->host->ops->backward(s->host, &host));
    for (size_t i = 0; i < PARAMETERS; i++) {
        parity_check_values(p, seed, names[i], there[i], here[i], s->counts[i], LIMIT, LIMIT_BF16);
    }
    if (!wants_dx) return;
    parity_check_activations(p, seed, "dx", device.dx, dx, b->x_count, LIMIT, LIMIT_BF16);
}

/* Layers of all kinds and shapes, truncated and not, compute what the twin does, with full batches
 * and with a few samples. */
static void layers_are_as_their_twins(bool is_bf16, uint64_t seed)
{
    for (uint32_t i = 0; i < 9; i++) {
        struct parity *p = parity_begin(is_bf16, 100 * seed + i);
        struct scene s = {.options = some_options(&p->rng, (enum recurrent_kind)(i % 3))};
        struct batch batch;

        scene_create(p, &s);
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t most = s.options.samples_max;
            uint32_t samples = k == 0 ? most : k == 1 ? 1 : between(&p->rng, 1, most);

            check_forward(p, seed, &s, samples, true, &batch);
            check_backward(p, seed, &s, &batch);
        }
        scene_destroy(&s);
        parity_end(p);
    }
}
PARITY_TEST(layers_are_as_their_twins)

/* Forward passes that nobody goes back from, of more counts of samples than a layer remembers, and
 * with new weights. */
static void passes_for_inference_are_as_their_twins(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    struct scene s = {.options = {.kind = (enum recurrent_kind)(seed % 3),
                                  .in = 5,
                                  .hidden = 12,
                                  .steps = 6,
                                  .samples_max = 14,
                                  .truncate = 4,
                                  .with_gradients = seed == 1}};
    struct batch batch;

    scene_create(p, &s);
    for (uint32_t samples = 1; samples <= 11; samples++) {
        check_forward(p, seed, &s, samples, false, &batch);
    }
    scene_prepare(p, &s);
    check_forward(p, seed, &s, 1, false, &batch);
    scene_destroy(&s);
    parity_end(p);
}
PARITY_TEST(passes_for_inference_are_as_their_twins)

/* A pass between another's way there and back changes nothing of it. */
static void passes_do_not_meet(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    struct scene s = {.options = {.kind = (enum recurrent_kind)(seed % 3),
                                  .in = 7,
                                  .hidden = 9,
                                  .steps = 5,
                                  .samples_max = 12,
                                  .truncate = 2,
                                  .with_gradients = true,
                                  .with_input_gradient = true}};
    struct batch first, second;

    scene_create(p, &s);
    check_forward(p, seed, &s, 12, true, &first);
    check_forward(p, seed, &s, 1, true, &second);
    check_backward(p, seed, &s, &first);
    check_forward(p, seed, &s, 3, false, &first);
    check_backward(p, seed, &s, &second);
    scene_destroy(&s);
    parity_end(p);
}
PARITY_TEST(passes_do_not_meet)

/* Recorded passes, run again, give the bits that direct calls give. */
static void recordings_repeat_the_calls(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    const struct backend_ops *ops = p->device->ops;
    struct scene s = {.options = {.kind = (enum recurrent_kind)(seed % 3),
                                  .in = 6,
                                  .hidden = 8,
                                  .steps = 7,
                                  .samples_max = 4,
                                  .truncate = 3,
                                  .with_gradients = true,
                                  .with_input_gradient = true}};
    struct recurrent_backward pass = {.samples = 4, .is_first = true};
    struct recording *recording = NULL;
    struct batch batch;
    float *saved, *y, *direct = NULL;

    scene_create(p, &s);
    check_forward(p, seed, &s, 4, true, &batch);
    saved = batch.saved;
    y = batch.y_there;
    pass.x = batch.x_there;
    pass.y = y;
    pass.saved = saved;
    pass.dy = parity_put_activations(p, parity_activations(p, batch.y_count, 1.0), batch.y_count);
    pass.dx = parity_room(p, batch.x_count);
    pass.dinput = parity_block(p, s.counts[0] * sizeof(float));
    pass.dhidden = parity_block(p, s.counts[1] * sizeof(float));
    pass.dbias_input = parity_block(p, s.counts[2] * sizeof(float));
    pass.dbias_hidden = parity_block(p, s.counts[3] * sizeof(float));
    for (int run = 0; run < 2; run++) {
        if (run == 1) parity_ok(p, ops->record_begin(p->device));
        parity_ok(p, s.device->ops->forward(s.device, 4, pass.x, y, saved));
        parity_ok(p, s.device->ops->backward(s.device, &pass));
        if (run == 0) {
            direct = parity_get_values(p, pass.dhidden, s.counts[1]);
            parity_ok(p, ops->zero(p->device, pass.dhidden, s.counts[1] * sizeof(float)));
        }
    }
    parity_ok(p, ops->record_end(p->device, &recording));
    parity_ok(p, ops->replay(p->device, recording));
    assert_memory_equal(direct, parity_get_values(p, pass.dhidden, s.counts[1]),
                        s.counts[1] * sizeof(float));
    p->checks++;
    ops->recording_destroy(p->device, recording);
    scene_destroy(&s);
    parity_end(p);
}
PARITY_TEST(recordings_repeat_the_calls)

/* The same layer twice gives the same bits, forward and backward: on a GPU only with one size of
 * workspace (CUBLAS_WORKSPACE_CONFIG), and where there is enough to do that sums are cut. */
static void equal_calls_give_equal_bits(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    struct scene s = {.options = {.kind = (enum recurrent_kind)(seed % 3),
                                  .in = 40,
                                  .hidden = 48,
                                  .steps = 9,
                                  .samples_max = 8,
                                  .truncate = 9,
                                  .with_gradients = true,
                                  .with_input_gradient = true}};
    struct recurrent_backward pass = {.samples = 8, .is_first = true};
    struct batch batch;
    float *first[4];

    scene_create(p, &s);
    check_forward(p, seed, &s, 8, true, &batch);
    pass.x = batch.x_there;
    pass.y = batch.y_there;
    pass.saved = batch.saved;
    pass.dy = parity_put_activations(p, parity_activations(p, batch.y_count, 1.0), batch.y_count);
    pass.dx = parity_room(p, batch.x_count);
    pass.dinput = parity_block(p, s.counts[0] * sizeof(float));
    pass.dhidden = parity_block(p, s.counts[1] * sizeof(float));
    pass.dbias_input = parity_block(p, s.counts[2] * sizeof(float));
    pass.dbias_hidden = parity_block(p, s.counts[3] * sizeof(float));
    for (int run = 0; run < 3; run++) {
        float *now[4];

        parity_ok(p, s.device->ops->forward(s.device, 8, pass.x, batch.y_there, batch.saved));
        parity_ok(p, s.device->ops->backward(s.device, &pass));
        now[0] = parity_get_activations(p, pass.y, batch.y_count);
        now[1] = parity_get_activations(p, pass.dx, batch.x_count);
        now[2] = parity_get_values(p, pass.dinput, s.counts[0]);
        now[3] = parity_get_values(p, pass.dhidden, s.counts[1]);
        if (run == 0) memcpy(first, now, sizeof(first));
        check_seed(seed, memcmp(first[0], now[0], batch.y_count * sizeof(float)) == 0);
        check_seed(seed, memcmp(first[1], now[1], batch.x_count * sizeof(float)) == 0);
        check_seed(seed, memcmp(first[2], now[2], s.counts[0] * sizeof(float)) == 0);
        check_seed(seed, memcmp(first[3], now[3], s.counts[1] * sizeof(float)) == 0);
        p->checks++;
    }
    scene_destroy(&s);
    parity_end(p);
}
PARITY_TEST(equal_calls_give_equal_bits)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(layers_are_as_their_twins),   PARITY_BOTH(passes_for_inference_are_as_their_twins),
    PARITY_BOTH(passes_do_not_meet),          PARITY_BOTH(recordings_repeat_the_calls),
    PARITY_BOTH(equal_calls_give_equal_bits),
};

PARITY_MAIN("recurrent", tests)
