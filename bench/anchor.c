/* The default batched plume search as a plain C loop: what our kernel is measured against.
 *
 * Structure of arrays. A step is four branch-free loops over all environments, one for each width of numbers, so that the
 * compiler makes vector code of every one (one loop for all is half as fast), and a rare pass that starts a new episode where the step before ended one (next-step autoreset). The numbers are
 * those of the single Python environment, bit for bit: tests/bench/test_anchor.py compares them.
 *
 * Compile without -ffast-math; -fno-math-errno only lets sqrt be an instruction.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define STREAM_START 1u
#define STREAM_NEXT_EPISODE 2u
#define SEED_MASK 0x7fffffffu

/* bench/c_plume.py declares the same fields in the same order. */
typedef struct {
    int64_t n;                        /* environments */
    int32_t width, height;            /* the grid */
    int32_t source_x, source_y;
    int32_t max_steps;
    int32_t moves;                    /* how many there are: at most four */
    double goal_radius;
    const int32_t *move_x, *move_y;   /* [moves], each in -128..127 */
    const double *along_x, *along_y;  /* [width], [height]: the Gaussian is their product */
    const int64_t *before;            /* [height + 1]: free start cells below each row */
    const int64_t *skip_from, *skip_to; /* [height]: the goal disc's part of each row */
    const int64_t *root_seed;         /* [n]: the seeds of the reset */
    int64_t *episode, *seed;          /* [n]: later episodes begun, and the seed of the present one */
    int32_t *x, *y, *steps;           /* [n] */
    double *total, *reward, *distance; /* [n] */
    float *observation;               /* [n] */
    uint8_t *terminated, *truncated, *done; /* [n] */
    int32_t *ended;                   /* [n]: scratch, the environments that begin anew in this step */
} plume_t;

static inline uint64_t mix(uint64_t word)
{
    word += 0x9E3779B97F4A7C15u;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

static inline uint64_t draw(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index)
{
    return mix(mix((seed << 32) | stream) ^ ((step << 32) | index));
}

static inline int64_t below(uint64_t bits, int64_t limit)
{
    int64_t value = (int64_t)((double)(bits >> 11) * 0x1p-53 * (double)limit);
    return value < limit ? value : limit - 1;
}

/* The last row that has at most `rank` free cells below it. */
static int64_t row_of(const int64_t *before, int64_t height, int64_t rank)
{
    int64_t low = 0, high = height + 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (rank < before[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low - 1;
}

/* Place environment i for the episode of this seed. */
static void begin(const plume_t *p, int64_t i, int64_t seed)
{
    int64_t rank = below(draw((uint64_t)seed, STREAM_START, 0, 0), p->before[p->height]);
    int64_t y = row_of(p->before, p->height, rank);
    int64_t x = rank - p->before[y];
    if (x >= p->skip_from[y])
        x += p->skip_to[y] - p->skip_from[y];
    int32_t dx = (int32_t)x - p->source_x, dy = (int32_t)y - p->source_y;

    p->seed[i] = seed;
    p->x[i] = (int32_t)x;
    p->y[i] = (int32_t)y;
    p->steps[i] = 0;
    p->total[i] = 0.0;
    p->reward[i] = 0.0;
    p->distance[i] = sqrt((double)(dx * dx + dy * dy));
    p->observation[i] = (float)(p->along_y[y] * p->along_x[x]);
    p->terminated[i] = p->truncated[i] = p->done[i] = 0;
}

static inline int32_t clamp(int32_t value, int32_t last)
{
    value = value < 0 ? 0 : value;
    return value > last ? last : value;
}

/* Up to four moves as signed bytes of one word: to look one up is a shift, which vectorises where a table does not. */
static uint32_t packed(const int32_t *moves, int32_t count)
{
    uint32_t word = 0;
    for (int32_t k = 0; k < count; k++)
        word |= (uint32_t)(uint8_t)moves[k] << (8 * k);
    return word;
}

static void move_along(int64_t n, const int64_t *restrict actions, uint32_t moves_x, uint32_t moves_y, int32_t last_x,
                       int32_t last_y, int32_t *restrict x, int32_t *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t shift = 8 * (int32_t)actions[i];
        x[i] = clamp(x[i] + (int8_t)(moves_x >> shift), last_x);
        y[i] = clamp(y[i] + (int8_t)(moves_y >> shift), last_y);
    }
}

static void smell(int64_t n, const int32_t *restrict x, const int32_t *restrict y, const double *restrict along_x,
                  const double *restrict along_y, float *restrict observation)
{
    for (int64_t i = 0; i < n; i++)
        observation[i] = (float)(along_y[y[i]] * along_x[x[i]]);
}

static void score(int64_t n, const int32_t *restrict x, const int32_t *restrict y, int32_t source_x, int32_t source_y,
                  double goal_radius, double *restrict distance, double *restrict reward, double *restrict total)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t dx = x[i] - source_x, dy = y[i] - source_y;
        double away = sqrt((double)(dx * dx + dy * dy));
        double gain = away <= goal_radius ? 1.0 : 0.0;
        distance[i] = away;
        reward[i] = gain;
        total[i] += gain;
    }
}

static void judge(int64_t n, const double *restrict distance, double goal_radius, int32_t max_steps,
                  int32_t *restrict steps, uint8_t *restrict terminated, uint8_t *restrict truncated,
                  uint8_t *restrict done)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t step = steps[i] + 1;
        uint8_t found = distance[i] <= goal_radius;
        uint8_t late = step >= max_steps;
        steps[i] = step;
        terminated[i] = found;
        truncated[i] = late;
        done[i] = found | late;
    }
}

/* List the environments whose episode the step before ended. */
static int64_t list_ended(const plume_t *p)
{
    int64_t count = 0, i = 0;
    for (; i + 8 <= p->n; i += 8) {
        uint64_t eight;
        memcpy(&eight, p->done + i, 8);
        if (eight)
            for (int64_t j = i; j < i + 8; j++)
                if (p->done[j])
                    p->ended[count++] = (int32_t)j;
    }
    for (; i < p->n; i++)
        if (p->done[i])
            p->ended[count++] = (int32_t)i;
    return count;
}

/* Begin all environments with their root seeds. */
void plume_reset(const plume_t *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        p->episode[i] = 0;
        begin(p, i, p->root_seed[i]);
    }
}

/* Make `count` steps with actions[count][n]; the arrays hold the results of the last one. */
void plume_steps(const plume_t *p, int64_t count, const int64_t *actions)
{
    uint32_t moves_x = packed(p->move_x, p->moves), moves_y = packed(p->move_y, p->moves);
    for (int64_t t = 0; t < count; t++) {
        int64_t ended = list_ended(p);
        move_along(p->n, actions + t * p->n, moves_x, moves_y, p->width - 1, p->height - 1, p->x, p->y);
        smell(p->n, p->x, p->y, p->along_x, p->along_y, p->observation);
        score(p->n, p->x, p->y, p->source_x, p->source_y, p->goal_radius, p->distance, p->reward, p->total);
        judge(p->n, p->distance, p->goal_radius, p->max_steps, p->steps, p->terminated, p->truncated, p->done);
        for (int64_t k = 0; k < ended; k++) {
            int64_t i = p->ended[k];
            uint64_t later = (uint64_t)++p->episode[i];
            begin(p, i, (int64_t)(draw((uint64_t)p->root_seed[i], STREAM_NEXT_EPISODE, later, 0) & SEED_MASK));
        }
    }
}
