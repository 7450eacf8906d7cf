// The kernels of hand_large.py in C, as plainly written.
#include <math.h>
#include <stdint.h>
#include <string.h>

// taste and its counts are [mood - 1, rank]; moves and transition [from, to].
double moods(int64_t n_pages, int64_t n, int64_t n_ranks, const int64_t *start, const uint8_t *clicks,
             const uint32_t *pair, const uint32_t *rank, const double *transition,
             const double *attraction, const double *taste, double *moves, double *attraction_heads,
             double *attraction_tails, double *taste_heads, double *taste_tails, double *forward,
             double *below, double *ahead) {
    double log_likelihood = 0.0;
    for (int64_t i = 0; i < n_pages; i++) {
        int64_t first = start[i], length = start[i + 1] - first;
        memset(forward, 0, n * sizeof(double));
        forward[0] = 1.0;
        for (int64_t t = 0; t < length; t++) {
            uint32_t k = pair[first + t], r = rank[first + t];
            const double *from = forward + t * n;
            double *to = forward + (t + 1) * n;
            for (int64_t s = 0; s < n; s++) {
                double total = 0.0;
                for (int64_t m = 0; m < n; m++) total += from[m] * transition[m * n + s];
                double p = s == 0 ? attraction[k] : taste[(s - 1) * n_ranks + r];
                to[s] = total * (clicks[first + t] == 1 ? p : 1.0 - p);
            }
        }
        double page = 0.0;
        for (int64_t s = 0; s < n; s++) page += forward[length * n + s];
        log_likelihood += log(page);
        for (int64_t s = 0; s < n; s++) below[s] = 1.0 / page;
        for (int64_t t = length - 1; t >= 0; t--) {
            uint32_t k = pair[first + t], r = rank[first + t];
            int is_clicked = clicks[first + t] == 1;
            for (int64_t s = 0; s < n; s++) {
                double reached = forward[(t + 1) * n + s] * below[s];
                double p = s == 0 ? attraction[k] : taste[(s - 1) * n_ranks + r];
                below[s] *= is_clicked ? p : 1.0 - p;
                if (s == 0)
                    (is_clicked ? attraction_heads : attraction_tails)[k] += reached;
                else
                    (is_clicked ? taste_heads : taste_tails)[(s - 1) * n_ranks + r] += reached;
            }
            for (int64_t m = 0; m < n; m++) {
                double total = 0.0, q = forward[t * n + m];
                for (int64_t s = 0; s < n; s++) {
                    double x = transition[m * n + s] * below[s];
                    moves[m * n + s] += q * x;
                    total += x;
                }
                ahead[m] = total;
            }
            memcpy(below, ahead, n * sizeof(double));
        }
    }
    return log_likelihood;
}

// Levels of lost patience and, after them, the state of those who have left.
double patience(int64_t n_pages, int64_t n, const int64_t *start, const uint8_t *clicks,
                const uint32_t *pair, const uint32_t *rank, const double *attraction,
                const double *hurry, const double *leaving, double *attraction_heads,
                double *attraction_tails, double *hurry_heads, double *hurry_tails,
                double *leaving_heads, double *leaving_tails, double *forward, double *below,
                double *ahead) {
    int64_t width = n + 1;
    double log_likelihood = 0.0;
    for (int64_t i = 0; i < n_pages; i++) {
        int64_t first = start[i], length = start[i + 1] - first;
        memset(forward, 0, width * sizeof(double));
        forward[0] = 1.0;
        for (int64_t t = 0; t < length; t++) {
            double a = attraction[pair[first + t]], h = t < length - 1 ? hurry[rank[first + t]] : 0.0;
            const double *from = forward + t * width;
            double *to = forward + (t + 1) * width;
            memset(to, 0, width * sizeof(double));
            if (clicks[first + t] == 1) {
                double total = 0.0;
                for (int64_t s = 0; s < n; s++) total += from[s];
                to[0] = total * a;
                continue;
            }
            double gone = from[n];
            for (int64_t s = 0; s < n; s++) {
                double stays = from[s] * (1.0 - a);
                to[s] += stays * (1.0 - h);
                gone += stays * h * leaving[s];
                if (s < n - 1) to[s + 1] += stays * h * (1.0 - leaving[s]);
            }
            to[n] = gone;
        }
        double page = 0.0;
        for (int64_t s = 0; s < width; s++) page += forward[length * width + s];
        log_likelihood += log(page);
        for (int64_t s = 0; s < width; s++) below[s] = 1.0 / page;
        for (int64_t t = length - 1; t >= 0; t--) {
            uint32_t k = pair[first + t], r = rank[first + t];
            int is_last = t == length - 1;
            double a = attraction[k], h = is_last ? 0.0 : hurry[r];
            const double *from = forward + t * width;
            if (clicks[first + t] == 1) {
                double clicked = 0.0, x = a * below[0];
                for (int64_t s = 0; s < n; s++) {
                    clicked += from[s] * x;
                    ahead[s] = x;
                }
                ahead[n] = 0.0;
                attraction_heads[k] += clicked;
            } else {
                double skipped = 0.0, hurried = 0.0;
                for (int64_t s = 0; s < n; s++) {
                    double leaves = h * leaving[s] * below[n];
                    double tires = s < n - 1 ? h * (1.0 - leaving[s]) * below[s + 1] : 0.0;
                    double x = from[s] * (1.0 - a);
                    leaving_heads[s] += x * leaves;
                    leaving_tails[s] += x * tires;
                    hurried += x * (leaves + tires);
                    ahead[s] = (1.0 - a) * ((1.0 - h) * below[s] + leaves + tires);
                    skipped += from[s] * ahead[s];
                }
                ahead[n] = below[n];
                attraction_tails[k] += skipped;
                if (!is_last) {
                    hurry_heads[r] += hurried;
                    hurry_tails[r] += skipped - hurried;
                }
            }
            memcpy(below, ahead, width * sizeof(double));
        }
    }
    return log_likelihood;
}
