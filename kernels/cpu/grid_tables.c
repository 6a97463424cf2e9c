/* grid_tables.c: see grid_tables.h. The compiler builds the tables: 33 KiB, and
 * 20 KiB of codes. */
#include "kernels/cpu/grid_tables.h"

#include "kernels/grids.h"

const struct grid_tables GRIDS = {
    .iq2_xxs =
        {
#define IQ2_XXS GRID_IQ2
#include "kernels/grids.def"
        },
    .iq2_xs =
        {
#define IQ2_XS GRID_IQ2
#include "kernels/grids.def"
        },
    .iq2_s =
        {
#define IQ2_S GRID_IQ2
#include "kernels/grids.def"
        },
    .iq1 =
        {
#define IQ1_S GRID_IQ1
#include "kernels/grids.def"
        },
    .iq3_xxs =
        {
#define IQ3_XXS GRID_IQ3_XXS
#include "kernels/grids.def"
        },
    .iq3_s =
        {
#define IQ3_S GRID_IQ3_S
#include "kernels/grids.def"
        },
};

const struct grid_codes GRID_CODES = {
    .iq2_xxs =
        {
            {
#define IQ2_XXS GRID_FIRST_8
#include "kernels/grids.def"
            },
            {
#define IQ2_XXS GRID_SECOND_8
#include "kernels/grids.def"
            },
        },
    .iq2_xs =
        {
            {
#define IQ2_XS GRID_FIRST_8
#include "kernels/grids.def"
            },
            {
#define IQ2_XS GRID_SECOND_8
#include "kernels/grids.def"
            },
        },
    .iq2_s =
        {
            {
#define IQ2_S GRID_FIRST_8
#include "kernels/grids.def"
            },
            {
#define IQ2_S GRID_SECOND_8
#include "kernels/grids.def"
            },
        },
    .iq1_first =
        {
#define IQ1_S GRID_FIRST_8
#include "kernels/grids.def"
        },
    .iq1_second =
        {
            .first =
                {
#define IQ1_S GRID_SECOND_OF_FIRST
#include "kernels/grids.def"
                },
            .last =
                {
#define IQ1_S GRID_SECOND_OF_LAST
#include "kernels/grids.def"
                },
            .last_from =
                {
#define IQ1_S GRID_LIKE_FIRST
#include "kernels/grids.def"
                },
        },
    .iq2_s_words =
        {
            0,
#define IQ2_S GRID_WORDS_8
#include "kernels/grids.def"
        },
    .iq1_words =
        {
            0,
#define IQ1_S GRID_WORDS_8
#include "kernels/grids.def"
        },
    .iq3_xxs =
        {
            {
#define IQ3_XXS GRID_FIRST_4
#include "kernels/grids.def"
            },
            {
#define IQ3_XXS GRID_SECOND_4
#include "kernels/grids.def"
            },
        },
    .iq3_s =
        {
            {
#define IQ3_S GRID_FIRST_4
#include "kernels/grids.def"
            },
            {
#define IQ3_S GRID_SECOND_4
#include "kernels/grids.def"
            },
        },
};
