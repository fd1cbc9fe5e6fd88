/* models: model files for the tests of distill, on the digits that are built in. */
#ifndef GRAPEVINE_TESTS_UNIT_DISTILL_MODELS_H
#define GRAPEVINE_TESTS_UNIT_DISTILL_MODELS_H

#include "tests/scratch.h"

#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/data/dataset.h"
#include "replica/formats/model_file.h"
#include "replica/learners/task.h"
#include "replica/plane/store_safetensors.h"

#include <stdio.h>

struct world {
    struct backend *backend;
    struct scratch scratch;
};

static inline int world_set_up(void **state)
{
    static const struct cpu_backend_options options = {.threads = 1};
    struct world *world = mem_alloc(sizeof *world);

    world->backend = cpu_backend_create(&options);
    scratch_init(&world->scratch);
    *state = world;
    return world->backend == NULL;
}

static inline int world_tear_down(void **state)
{
    struct world *world = *state;

    scratch_deinit(&world->scratch);
    backend_destroy(world->backend);
    mem_free(world);
    return 0;
}

/* An untrained model for digits; its card says so. */
static inline struct model *world_model(struct world *world, const char *spec, uint64_t seed,
                                        struct model_card *card)
{
    struct dataset *digits = NULL;
    struct model *model = NULL;

    assert_int_equal(dataset_open("digits", &(struct dataset_options){.seed = 1}, &digits, NULL),
                     RC_OK);
    const struct dataset_info *info = dataset_info(digits);
    const struct model_options options = {.spec = spec,
                                          .channels = info->channels,
                                          .height = info->height,
                                          .width = info->width,
                                          .classes = info->classes,
                                          .batch_max = 64,
                                          .seed = seed};
    assert_int_equal(model_create(world->backend, &options, &model, NULL), RC_OK);
    *card = (struct model_card){.channels = info->channels,
                                .height = info->height,
                                .width = info->width,
                                .classes = info->classes,
                                .step = seed,
                                .samples = 10 * seed};
    model_set_normalisation(model, info->mean, info->scale);
    snprintf(card->spec, sizeof card->spec, "%s", model_spec(model));
    snprintf(card->data, sizeof card->data, "digits");
    dataset_close(digits);
    return model;
}

/* An untrained model for `data`; its card says so. */
static inline struct model *world_model_of(struct world *world, const char *spec, const char *data,
                                           uint32_t context, uint64_t seed, bool with_gradients,
                                           struct model_card *card)
{
    const struct dataset_options opening = {.seed = 1, .context = context};
    struct model_options options = {
        .spec = spec, .batch_max = 64, .seed = seed, .with_gradients = with_gradients};
    struct dataset *dataset = NULL;
    struct model *model = NULL;
    struct fault why = {""};

    if (dataset_open(data, &opening, &dataset, &why) != RC_OK) fail_msg("%s", why.text);
    task_describe(dataset_info(dataset), &options);
    if (model_create(world->backend, &options, &model, &why) != RC_OK) fail_msg("%s", why.text);
    model_set_normalisation(model, dataset_info(dataset)->mean, dataset_info(dataset)->scale);
    task_card(dataset_info(dataset), model, card);
    snprintf(card->data, sizeof card->data, "%s", data);
    dataset_close(dataset);
    return model;
}

static inline void world_save(struct model *model, const struct model_card *card, const char *path)
{
    struct tensor_file *file = tensor_file_create();

    assert_int_equal(model_save(model, card, file), RC_OK);
    assert_int_equal(tensor_file_save(file, path, NULL), RC_OK);
    tensor_file_destroy(file);
}

/* Write an untrained model file; returns its path (see scratch_path()). */
static inline const char *world_file(struct world *world, const char *name, const char *spec,
                                     uint64_t seed)
{
    struct model_card card;
    struct model *model = world_model(world, spec, seed, &card);
    const char *path = scratch_path(&world->scratch, name);

    world_save(model, &card, path);
    model_destroy(model);
    return path;
}

/* The same for `data`. */
static inline const char *world_file_of(struct world *world, const char *name, const char *spec,
                                        const char *data, uint32_t context, uint64_t seed)
{
    struct model_card card;
    struct model *model = world_model_of(world, spec, data, context, seed, false, &card);
    const char *path = scratch_path(&world->scratch, name);

    world_save(model, &card, path);
    model_destroy(model);
    return path;
}

/* A text in which each letter tells much of the next; returns the --data spec. `letters`: how many
 * different ones, from 'a' on. */
static inline void world_text(struct world *world, const char *name, unsigned letters,
                              char spec[256])
{
    const char *path = scratch_path(&world->scratch, name);
    FILE *file = fopen(path, "w");
    unsigned at = 0;

    assert_non_null(file);
    for (int i = 0; i < 4000; i++) {
        at = i % 7 == 0 ? (at + 2) % letters : (at + 1) % letters;
        fputc('a' + (int)at, file);
    }
    fclose(file);
    snprintf(spec, 256, "text:%s", path);
}

#endif
