/* rate_meter: see rate_meter.h. Loop thread. */
#include "gossip/flow/rate_meter.h"

static uint64_t rate_of(uint64_t bytes, uint64_t took_ns)
{
    double rate = (double)bytes * (double)NS_PER_S / (double)took_ns;

    return rate < (double)METER_RATE_MAX ? (uint64_t)rate : METER_RATE_MAX;
}

void rate_meter_note(struct rate_meter *meter, size_t bytes, uint64_t spent_ns, uint64_t now_ns)
{
    uint64_t since_ns = now_ns > spent_ns ? now_ns - spent_ns : 0;

    if (since_ns < meter->covered_ns) since_ns = meter->covered_ns;
    if (now_ns > since_ns) meter->busy_ns += now_ns - since_ns;
    if (meter->covered_ns < now_ns) meter->covered_ns = now_ns;
    meter->bytes += bytes;
    if (meter->busy_ns < METER_BUSY_NS) return;
    meter->samples[meter->next].rate = rate_of(meter->bytes, meter->busy_ns);
    meter->samples[meter->next].at_ns = now_ns;
    meter->next = (meter->next + 1) % METER_SAMPLES;
    meter->bytes = meter->busy_ns = 0;
}

bool rate_meter_read(const struct rate_meter *meter, uint64_t now_ns, uint64_t *rate,
                     bool *is_least)
{
    uint64_t best = 0, least = rate_of(meter->bytes, METER_BUSY_NS);

    for (int i = 0; i < METER_SAMPLES; i++) {
        uint64_t at_ns = meter->samples[i].at_ns;

        if (at_ns == 0 || now_ns > at_ns + METER_AGE_NS) continue;
        if (meter->samples[i].rate > best) best = meter->samples[i].rate;
    }
    *is_least = best == 0;
    *rate = best > least ? best : least;
    return *rate > 0;
}
