/* The hand-written kernels of hand_kernels.py once more in C, for information. */

#include <math.h>
#include <stdint.h>

double dbn(int64_t n_pages, const int64_t *start, const uint8_t *clicks, const uint32_t *pair,
           const double *attraction, const double *satisfaction, const double *continuation,
           double *attraction_heads, double *attraction_tails, double *satisfaction_heads,
           double *satisfaction_tails, double *continuation_counts, double *backward)
{
    const double stay = continuation[0], go = 1.0 - stay;
    double stayed = 0.0, went = 0.0, log_likelihood = 0.0;
    for (int64_t i = 0; i < n_pages; i++) {
        const int64_t first = start[i], last = start[i + 1] - first - 1;
        const uint8_t *click = clicks + first;
        const uint32_t *row = pair + first;
        double a = attraction[row[last]];
        double below = click[last] ? a : 1.0 - a;
        double below_left = click[last] ? 0.0 : 1.0;
        int64_t last_click = click[last] ? last : -1;
        backward[last] = below;
        for (int64_t t = last - 1; t >= 0; t--) {
            const double unsatisfied = stay * below + go * below_left;
            a = attraction[row[t]];
            if (click[t]) {
                const double s = satisfaction[row[t]];
                below = a * (s * below_left + (1.0 - s) * unsatisfied);
                if (last_click < 0) last_click = t;
                below_left = 0.0;
            } else {
                below = (1.0 - a) * unsatisfied;
            }
            backward[t] = below;
        }
        log_likelihood += log(below);
        double forward = 1.0 / below, examines = 1.0, examines_next;
        for (int64_t t = 0; t < last; t++) {
            const uint32_t k = row[t];
            a = attraction[k];
            if (click[t]) {
                const double s = satisfaction[k];
                forward *= a;
                const double satisfied = t == last_click ? forward * s : 0.0;
                forward *= (1.0 - s) * stay;
                examines_next = forward * backward[t + 1];
                attraction_heads[k] += examines;
                satisfaction_heads[k] += satisfied;
                satisfaction_tails[k] += examines - satisfied;
                stayed += examines_next;
                went += examines - satisfied - examines_next;
            } else {
                forward *= (1.0 - a) * stay;
                examines_next = forward * backward[t + 1];
                attraction_tails[k] += examines;
                stayed += examines_next;
                went += examines - examines_next;
            }
            examines = examines_next;
        }
        if (click[last]) attraction_heads[row[last]] += examines;
        else attraction_tails[row[last]] += examines;
    }
    continuation_counts[0] += stayed;
    continuation_counts[1] += went;
    return log_likelihood;
}

double ubm(int64_t n_pages, const int64_t *start, const uint8_t *clicks, const uint32_t *place,
           const uint32_t *pair, const double *examination, const double *attraction,
           double *examination_heads, double *examination_tails, double *attraction_heads,
           double *attraction_tails)
{
    double log_likelihood = 0.0;
    for (int64_t i = 0; i < n_pages; i++) {
        double page = 1.0;
        for (int64_t j = start[i]; j < start[i + 1]; j++) {
            const uint32_t p = place[j], k = pair[j];
            const double e = examination[p], a = attraction[k];
            if (clicks[j]) {
                page *= e * a;
                examination_heads[p] += 1.0;
                attraction_heads[k] += 1.0;
            } else {
                const double skipped = 1.0 - e * a, examined = e * (1.0 - a) / skipped;
                page *= skipped;
                examination_heads[p] += examined;
                examination_tails[p] += 1.0 - examined;
                attraction_tails[k] += examined;
            }
        }
        log_likelihood += log(page);
    }
    return log_likelihood;
}
