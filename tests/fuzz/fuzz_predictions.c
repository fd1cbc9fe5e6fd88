/*
 * What a member says of samples, any bytes: refused, or distributions that can be said again and
 * mean the same. The first three bytes choose the shape. And a poll of two members with the fuzzer
 * as the network: whatever comes when, nothing is kept beyond what was asked for.
 */
#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "distill/panel.h"
#include "peer/download/poll.h"
#include "peer/times.h"

#include <math.h>

enum { OUTPUTS_MAX = 40, BYTES_MAX = 4096, SAMPLES = 40, WINDOW = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static struct predictions_shape shape_of(const uint8_t *bytes)
{
    return (struct predictions_shape){.rows = 1 + bytes[0] % 3U,
                                      .outputs = 2 + bytes[1] % (OUTPUTS_MAX - 1U),
                                      .top = bytes[2] % 8,
                                      .is_real = bytes[2] >= 240};
}

static void decode(const struct predictions_shape *shape, const uint8_t *bytes, size_t count)
{
    static float values[3 * OUTPUTS_MAX], again[3 * OUTPUTS_MAX];
    static uint8_t said[3 * OUTPUTS_MAX * 4];

    if (count < predictions_bytes(shape)) return;
    if (predictions_decode(shape, bytes, 1, 1.0, values) != RC_OK) return;
    CHECK(floats_are_finite(values, (size_t)shape->rows * shape->outputs));
    for (uint32_t r = 0; !shape->is_real && r < shape->rows; r++) {
        double sum = 0;
        for (uint32_t c = 0; c < shape->outputs; c++) {
            CHECK(values[r * shape->outputs + c] >= 0);
            sum += (double)values[r * shape->outputs + c];
        }
        CHECK(fabs(sum - 1) < 1e-3);
    }
    predictions_encode(shape, values, 1, said);
    CHECK(predictions_decode(shape, said, 1, 3.0, again) == RC_OK);
}

struct input {
    const uint8_t *bytes;
    size_t left;
};

static uint8_t next(struct input *input)
{
    if (input->left == 0) return 0;
    input->left--;
    return *input->bytes++;
}

/* A message as it may come: what was asked, changed where the fuzzer says so. */
static void answer(struct poll *poll, struct input *input, const struct predictions_shape *shape,
                   const struct message *asked, uint32_t member, uint64_t now_ns)
{
    struct message_predictions said = {.first = asked->as.probe.first, .at = asked->as.probe.at};
    const uint8_t how = next(input);

    said.count = next(input);
    said.values = input->bytes;
    said.values_bytes = (uint32_t)(said.count * predictions_bytes(shape));
    if ((how & 1) != 0) said.values_bytes += next(input);
    if ((how & 2) != 0) said.at = next(input);
    if ((how & 4) != 0) said.first = next(input);
    if ((how & 8) != 0) said.code = next(input) % (PREDICTIONS_LATER + 1);
    said.wait_ms = (uint32_t)next(input) << 16;
    if (said.values_bytes > input->left) return;
    input->bytes += said.values_bytes;
    input->left -= said.values_bytes;
    CHECK(poll_on_answer(poll, member, &said, now_ns, NULL) == RC_OK);
}

static void ask(struct input *input, const struct predictions_shape *shape)
{
    const struct digest digests[(SAMPLES + WINDOW - 1) / WINDOW] = {0};
    struct panel_options kept = {
        .shape = *shape, .samples = SAMPLES, .members = 2, .trim = 1, .folder = "/tmp"};
    struct poll_options options = {.shape = *shape,
                                   .samples = SAMPLES,
                                   .window = WINDOW,
                                   .digests = digests,
                                   .members = 2,
                                   .trim = 1,
                                   .silence_ns = 10 * NS_PER_S};
    struct message asked[2] = {{.type = MESSAGE_PROBE}, {.type = MESSAGE_PROBE}}, message;
    uint64_t now_ns = NS_PER_S;
    uint32_t member;

    if (panel_create(&kept, &options.panel, NULL) != RC_OK) return;
    struct poll *poll = poll_create(&options, now_ns);
    CHECK(poll != NULL);
    while (input->left > 0 && !poll_is_over(poll)) {
        const uint8_t what = next(input);

        now_ns += (uint64_t)(what >> 4) * NS_PER_MS * 100;
        poll_tick(poll, now_ns);
        while (poll_next_question(poll, now_ns, &member, &message)) {
            CHECK(message.as.probe.first + message.as.probe.count <= SAMPLES);
            CHECK(message.as.probe.at + message.as.probe.most <= message.as.probe.count);
            asked[member] = message;
        }
        (void)poll_next_dial(poll, now_ns, &member);
        if (what % 8 == 0) poll_on_open(poll, what / 8 % 2, now_ns);
        if (what % 8 == 1) poll_on_lost(poll, what / 8 % 2, "lost", now_ns);
        if (what % 8 > 1) answer(poll, input, shape, &asked[what % 2], what % 2, now_ns);
        CHECK(panel_answered(options.panel, 0) <= SAMPLES);
    }
    CHECK(poll_usable(poll) <= SAMPLES);
    poll_destroy(poll);
    panel_destroy(options.panel);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count < 4 || count > BYTES_MAX) return 0;
    const struct predictions_shape shape = shape_of(bytes);
    struct input input = {bytes + 4, count - 4};

    if (bytes[3] % 2 == 0) decode(&shape, bytes + 4, count - 4);
    if (bytes[3] % 2 == 1) ask(&input, &shape);
    return 0;
}
