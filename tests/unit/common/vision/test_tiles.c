/* How families cut an image into tiles: the grid, and what stands between tiles in a prompt. */
#include "common/vision/vision.h"
#include "tests/unit/common/vision/vision_files.h"

/* The number of an image, the whole, and rows of slices. */
TEST(minicpmv_numbers_images_and_cuts_slices)
{
    struct vision *v =
        load("{\"model_type\":\"minicpmv4_6\",\"vision_config\":{\"patch_size\":14}}",
             "{\"scale_resolution\":56,\"max_slice_nums\":4}");
    const struct vision_plan p = planned(v, 112, 112);
    struct buf out = BUF_INIT;
    vision_expand(v, &p, 3, &out);
    assert_string_equal(out.p, "<image_id>3</image_id><image><|image_pad|></image>"
                               "<slice><|image_pad|></slice><slice><|image_pad|></slice>\n"
                               "<slice><|image_pad|></slice><slice><|image_pad|></slice>");
    buf_free(&out);
    vision_free(v);
    v = load("{\"model_type\":\"minicpmv4_6\",\"vision_config\":{\"patch_size\":14}}",
             "{\"scale_resolution\":56,\"slice_mode\":false,\"use_image_id\":false}");
    const struct vision_plan whole = planned(v, 1120, 560);
    vision_expand(v, &whole, 3, &out);
    assert_string_equal(out.p, "<image><|image_pad|></image>");
    buf_free(&out);
    vision_free(v);
}

/* A slice has as many features as there are queries, whatever its size. */
TEST(minicpmv_has_queries_for_each_slice)
{
    struct vision *v = load("{\"model_type\":\"minicpmv\",\"version\":2.6,\"query_num\":2,"
                            "\"use_image_id\":true,\"vision_config\":{}}",
                            "{\"scale_resolution\":28,\"max_slice_nums\":4}");
    assert_string_equal(vision_marker(v), "(<image>./</image>)");
    expands_to(v, 28, 28, "<image_id>0</image_id><image><unk><unk></image>");
    expands_to(v, 56, 28,
               "<image_id>0</image_id><image><unk><unk></image><slice><unk><unk></slice>"
               "<slice><unk><unk></slice>");
    expands_to(v, 28, 56,
               "<image_id>0</image_id><image><unk><unk></image><slice><unk><unk></slice>\n"
               "<slice><unk><unk></slice>");
    vision_free(v);
}

/* What stands between tiles of a row, and between rows. */
TEST(ovis2_marks_columns_and_rows)
{
    struct vision *v = load("{\"model_type\":\"ovis2\",\"vision_config\":"
                            "{\"image_size\":28,\"patch_size\":14,\"hidden_stride\":2}}",
                            "{\"size\":28,\"crop_to_patches\":true,\"max_patches\":4}");
    const struct vision_plan p = planned(v, 56, 56);
    expands_to(v, 28, 28, "<IMG_START><IMG_ATOM><IMG_GRID><IMG_END>");
    expands_to(v, 56, 56,
               "<IMG_START><IMG_ATOM><IMG_GRID><IMG_ATOM><IMG_COL><IMG_ATOM>"
               "<IMG_ROW><IMG_ATOM><IMG_COL><IMG_ATOM><IMG_END>");
    assert_int_equal(p.n_features, 5);
    vision_free(v);
}

TEST(granite_docling_names_tiles)
{
#define FAKE "<fake_token_around_image>"
    struct vision *v = load("{\"model_type\":\"granite_docling\",\"vision_config\":"
                            "{\"image_size\":64,\"patch_size\":16}}",
                            "{\"size\":64,\"max_patches\":2}");
    expands_to(v, 64, 64, FAKE "<row_1_col_1><image>\n");
    expands_to(v, 64, 128,
               FAKE "<row_1_col_1><image>\n" FAKE "<row_2_col_1><image>\n\n" FAKE
                    "<global-img><image>" FAKE);
    vision_free(v);
}

/* Wide pages whose width would shrink too much have more tiles. */
TEST(granite_docling_cuts_wide_pages_finer)
{
#define DENSE                                                                                      \
    "\"max_patches\":4,\"dense_max_patches\":12,\"dense_max_scale\":0.8,\"dense_min_aspect\":1.2," \
    "\"dense_max_aspect\":3"
    struct vision *v =
        load("{\"model_type\":\"granite_docling\",\"vision_config\":{}}", "{" DENSE "}");
    assert_int_equal(planned(v, 1536, 1024).n_crops, 3 * 2 + 1);
    assert_int_equal(planned(v, 1365, 2048).n_crops, 1 * 2 + 1);
    assert_int_equal(planned(v, 4096, 1024).n_crops, 4 * 1 + 1); /* beyond dense_max_aspect */
    vision_free(v);
    v = load("{\"model_type\":\"granite_docling\",\"vision_config\":{}}", "{\"max_patches\":4}");
    assert_int_equal(planned(v, 1536, 1024).n_crops, 2 * 2 + 1);
    vision_free(v);
}

/* Tokens of an image, and the grids of square ones: the order of a set of Python decides. */
TEST(muse_glimmer_takes_the_nearest_grid)
{
    struct vision *v = load("{\"model_type\":\"muse_glimmer\",\"vision_config\":{}}",
                            "{\"max_image_tokens\":100}");
    expands_to(v, 28, 56, "<|image_start|><|patch|><|patch|><|image_end|>");
    assert_int_equal(planned(v, 1000, 1000).grid_h, 10);
    assert_int_equal(planned(v, 40, 40).grid_h, 1);
    assert_int_equal(planned(v, 70, 70).grid_h, 3);
    assert_int_equal(planned(v, 1, 28 * 300).grid_h, 300); /* no grid has at most 100 features */
    vision_free(v);
}

/* The shorter side becomes that of a feature, and the longer one is cut down to 200 times it. */
TEST(ovis_2_5_takes_any_aspect)
{
    struct vision *v =
        load("{\"model_type\":\"ovis2_5\",\"vit_config\":{\"patch_size\":16}}", "{}");
    struct vision_plan p;
    struct err e = ERR_INIT;
    assert_int_equal(vision_plan(v, 10, 2400, &p, &e), 0);
    assert_int_equal(p.crop_width, 32);
    assert_int_equal(p.crop_height, 7680);
    assert_int_equal(p.n_features, 240 + 2);
    assert_int_equal(vision_plan(v, 40, 9000, &p, &e), 0); /* as if it had 40 x 8000 pixels */
    assert_int_equal(p.crop_width, 32);
    assert_int_equal(p.crop_height, 8000);
    assert_int_equal(vision_plan(v, 1, 5000, &p, &e), -1);
    assert_non_null(strstr(e.msg, "no feature"));
    vision_free(v);
}

/* One frame, and one coordinate of a position. */
TEST(dots_ocr_reads_one_frame)
{
    struct vision *v = load("{\"model_type\":\"dots_ocr\",\"vision_config\":{}}",
                            "{\"min_pixels\":784,\"max_pixels\":1568,\"temporal_patch_size\":1}");
    assert_string_equal(vision_marker_around(v), "<|img|><|imgpad|><|endofimg|>");
    assert_int_equal(vision_format(v)->frames, 1);
    assert_false(vision_three_positions(v));
    expands_to(v, 56, 28, "<|imgpad|><|imgpad|>");
    vision_free(v);
}

/* Tiles of a large image, then all of it in a square of another size, and one feature more. */
TEST(deepseek_shows_tiles_and_the_whole)
{
    struct vision *v = load("{\"model_type\":\"deepseek_ocr2\",\"vision_config\":{}}", NULL);
    struct vision_plan p = planned(v, 768, 500);
    assert_int_equal(p.n_crops, 1);
    assert_int_equal(p.n_features, 257);
    assert_int_equal(vision_crop_width(&p, 0), 1024);
    assert_int_equal(p.resizes[0].height, 667); /* of 666.7 */
    assert_int_equal(p.crops[0].y, -178);
    assert_int_equal(vision_format(v)->outside[1], 127);
    p = planned(v, 1600, 800);
    assert_int_equal(p.n_crops, 3);
    assert_int_equal(p.cols, 2);
    assert_int_equal(p.n_features, 2 * 144 + 257);
    assert_int_equal(vision_crop_width(&p, 1), 768);
    assert_int_equal(vision_crop_width(&p, 2), 1024);
    vision_free(v);
    v = load("{\"model_type\":\"deepseek_ocr2\",\"vision_config\":{}}",
             "{\"crop_to_patches\":false}");
    p = planned(v, 1600, 800);
    assert_int_equal(p.n_features, 145);
    vision_free(v);
}

/* The same with other sizes; each row of features, also of the whole, has one more. */
TEST(deepseek_ocr_ends_rows)
{
    struct vision *v = load("{\"model_type\":\"deepseek_vl_v2\",\"vision_config\":"
                            "{\"model_name\":\"deeplip_b_l\"}}",
                            NULL);
    struct vision_plan p = planned(v, 640, 427);
    assert_int_equal(p.n_crops, 1);
    assert_int_equal(p.n_features, 16 * 17 + 1);
    assert_int_equal(p.resizes[0].height, 683); /* of 683.2 */
    assert_int_equal(p.crops[0].y, -170);       /* of 170.5, as Python rounds */
    p = planned(v, 1800, 1200);
    assert_int_equal(p.n_crops, 7);
    assert_int_equal(p.cols, 3);
    assert_int_equal(p.n_features, 20 * 31 + 16 * 17 + 1);
    assert_int_equal(vision_crop_width(&p, 5), 640);
    assert_int_equal(vision_crop_width(&p, 6), 1024);
    p = planned(v, 9000, 1000);
    assert_int_equal(p.cols, 9);
    vision_free(v);
}

int main(void) { return tests_run(NULL, NULL); }
