"""Tests that wait for CI (`full`) or for the week (`weekly`); all others are those of `make test`.

A module has the names of its functions, classes and methods, `*` for all of them. Brackets hold one
set of arguments. Tests of the core that use `rooms` are left out where rooms are taken out.
"""

from __future__ import annotations

import re

LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "full": {
        "extensions/budgets/test_budgets.py": ("test_a_learner_keeps_its_budget",),
        "extensions/clarification/test_clarified_packs.py": ("test_what_was_asked_and_learned",),
        "extensions/clarification/test_clarified_unwritable.py": (
            "TestFullDisk.test_a_question_is_answered_as_it_is",
            "test_a_server_that_is_away",
        ),
        "extensions/clarification/test_cli_live_reply.py": (
            "test_a_reply_in_a_process_of_its_own",
            "test_json_is_a_structure_and_no_prompt",
        ),
        "extensions/clarification/test_guides.py": (
            "test_the_page_on_clarification_runs",
            "test_the_page_on_pinned_documents_runs",
        ),
        "extensions/clarification/test_live_clarification.py": (
            "TestCoherence.test_applied_and_corrected_or_confirmed",
            "TestTheArticle.test_twelve_bodies_and_a_cover_sheet",
        ),
        "extensions/clarification/test_live_question_signals.py": (
            "test_a_changed_parser_has_another_version",
        ),
        "extensions/clarification/test_live_replies_at_once.py": (
            "test_the_first_is_taken_and_the_rest_are_refused",
        ),
        "extensions/clarification/test_logged_defaults.py": (
            "TestRows.test_a_split",
            "TestRows.test_any_sequence_is_rebuilt",
            "test_killed_in_the_middle",
            "test_processes_at_once",
        ),
        "extensions/clarification/test_model_calls.py": (
            "test_a_quirk_of_a_server_ends_in_the_default",
        ),
        "extensions/clarification/test_protocol_calls.py": (
            "test_a_failure_live_is_said_once_and_logged",
        ),
        "extensions/clarification/test_reply_crowd.py": (
            "TestEndToEnd.test_what_names_nothing_changes_nothing",
            "test_what_a_reply_says",
        ),
        "extensions/clarification/test_reply_laws.py": (
            "TestLaws.test_names_are_on_offer",
            "TestLaws.test_noise_is_no_vote",
        ),
        "extensions/cockpit/test_browser.py": (
            "TestCockpit",
            "TestFrozen",
            "TestKernel.test_a_restarted_kernel_is_told",
            "TestLayout",
        ),
        "extensions/cockpit/test_fuzz_cockpit.py": ("test_whatever_a_page_sends",),
        "extensions/cockpit/test_lab_cockpit.py": (
            "TestAxes.test_every_position_is_an_exact_step",
            "TestNumbers.test_counts_beside_gates_are_the_matrix",
            "TestNumbers.test_random_policies_show_what_sweep_says",
        ),
        "extensions/graph_table/test_retrieval_entity_graph.py": (
            "TestWalk.test_the_same_in_every_process",
        ),
        "extensions/imports/test_cli_import.py": ("test_a_folder_is_of_shards",),
        "extensions/imports/test_fuzz_imports.py": (
            "test_spans_that_are_none_are_a_trace_or_are_refused",
        ),
        "extensions/imports/test_import_killed.py": ("test_a_run_that_is_tracked",),
        "extensions/imports/test_mlflow_import.py": (
            "TestStore.test_requests_with_scores_feedback_and_groups",
        ),
        "extensions/imports/test_span_import.py": (
            "TestParts.test_shards_decide_as_the_whole",
            "test_work_is_linear_in_the_input",
        ),
        "extensions/learned_signals/test_answering_judging.py": (
            "test_a_late_reply_is_charged_in_full",
            "test_a_quirk_of_a_server_is_a_missing_score_and_never_a_low_one",
        ),
        "extensions/learned_signals/test_lab_learned_signal.py": (
            "TestLearnedSignal.test_it_tells_apart",
        ),
        "extensions/learned_signals/test_signal_models.py": (
            "test_a_judge_that_is_killed_goes_on_and_asks_no_case_twice",
        ),
        "extensions/monitoring/test_cli_monitor.py": ("test_four_processes_at_one_state",),
        "extensions/scale/test_cli_scale.py": ("test_an_index_on_disk_of_a_trace",),
        "extensions/scale/test_groups_on_shards.py": ("test_sharded_is_whole",),
        "extensions/scale/test_lab_certification_shards.py": (
            "test_a_certificate_of_the_shards_is_that_of_the_whole",
            "test_a_decision_by_expected_cost_is_certified_by_shard",
        ),
        "extensions/scale/test_lab_over_shards.py": ("TestReport.test_every_section",),
        "extensions/scale/test_lab_study_shards.py": (
            "TestMeasuredShards.test_counts_are_those_of_the_shards",
            "TestTune.test_a_study_is_that_of_the_whole",
            "TestTune.test_of_many_cases_candidates_are_made_of_a_sample",
        ),
        "extensions/scale/test_live_large_index.py": (
            "TestEndToEnd.test_answers_as_the_exact_index",
            "TestKind.test_refused_before_anything_is_encoded",
        ),
        "extensions/scale/test_live_shard_building.py": (
            "test_a_killed_worker_of_a_cluster",
            "test_a_lost_scheduler",
        ),
        "extensions/scale/test_parallel_shards.py": (
            "test_one_shard_is_held_at_a_time",
            "test_processes_count_as_one",
            "test_threads_count_as_one_process",
        ),
        "fuzz/test_fuzz_cli.py": ("test_every_command_ends_with_a_code_and_a_line",),
        "fuzz/test_fuzz_documents.py": ("test_a_mutated_document_loads_or_is_told",),
        "fuzz/test_fuzz_frames.py": ("test_a_mutated_frame_is_a_trace_or_is_told",),
        "fuzz/test_fuzz_gates.py": ("test_whatever_a_gate_returns",),
        "fuzz/test_fuzz_logs.py": ("test_a_log_that_was_altered_is_read_or_refused",),
        "fuzz/test_fuzz_outcomes.py": ("test_kinds_by_head",),
        "fuzz/test_fuzz_pdf.py": (
            "test_an_altered_pdf_is_read_or_told",
            "test_the_fork_reads_what_the_worker_reads",
        ),
        "fuzz/test_fuzz_log_cells.py": ("test_changed_logs_are_read",),
        "test_failed_calls.py": ("TestLeftOut.test_it_decides_as_the_rest",),
        "test_answer_basis.py": (
            "TestComparisons.test_a_study_judges_by_what_is_at_hand_or_chosen",
            "TestComparisons.test_a_study_leaves_them_out",
            "TestLaws.test_right_answers_change_nothing_and_wrong_ones_leave_nothing_correct",
            "TestLaws.test_shards_count_as_one_piece",
            "TestLaws.test_sweep_steps_and_decisions_count_alike",
        ),
        "test_answering_extractive.py": ("test_a_long_passage_takes_time_in_proportion",),
        "test_answering_server.py": (
            "test_a_deadline_is_for_all_attempts_and_pauses",
            "test_a_failure_is_an_error_and_never_a_refusal",
        ),
        "test_audit_explanation.py": ("test_the_checks_alone_give_the_decision",),
        "test_audit_live_rates.py": (
            "TestLabels.test_what_is_refused",
            "test_the_door",
        ),
        "test_bandit_howto.py": ("test_the_blocks_give_reward_and_spend_apart",),
        "test_bandit_kernel.py": ("test_compiled_loops_are_choose_and_update",),
        "test_bandit_learner.py": ("test_many_steps_at_once_are_the_steps_one_by_one",),
        "test_bandit_propensity.py": ("test_choices_are_as_frequent_as_stated",),
        "test_bandit_simulation.py": ("test_the_number_of_processes_changes_no_bit",),
        "test_browser_report.py": ("*",),
        "test_bundled.py": (
            "test_last_digits_change_no_decision_away_from_a_threshold",
            "test_sweep_decision_and_explanation_agree_on_every_case",
        ),
        "test_certify.py": (
            "test_graded_losses_keep_their_promise",
            "test_one_gate_keeps_its_promise",
        ),
        "test_cli.py": (
            "test_encodings_of_documents_and_labels",
            "test_questions_are_dealt_splits",
        ),
        "test_cli_baselines.py": (
            "test_a_baseline_by_other_costs",
            "test_exit_codes_of_a_process",
        ),
        "test_cli_door.py": (
            "TestStreams.test_a_full_disk",
            "TestStreams.test_narrow_and_closed",
            "TestStreams.test_the_help",
        ),
        "test_cli_logs_by_url.py": ("test_each_command",),
        "test_client_settings.py": ("TestWrongSettings.test_recording_ends_with_its_first_batch",),
        "test_decided_by.py": (
            "test_counts_are_those_of_the_sweep_in_both_engines",
            "test_what_decided_is_a_gate_that_is_on_a_rule_or_nothing",
        ),
        "test_decision_document_names.py": (
            "TestIdentity.test_on_a_flat_corpus_both_identities_decide_alike",
            "TestIdentity.test_renamed_folders_change_no_decision_by_path",
        ),
        "test_decision_kernel.py": (
            "test_kernel_and_chain_agree_in_every_cell[3]",
            "test_kernel_and_chain_agree_in_every_cell[4]",
            "test_kernel_and_chain_agree_in_every_cell[5]",
            "test_kernel_and_chain_agree_in_every_cell[6]",
            "test_kernel_and_chain_agree_in_every_cell[7]",
            "test_kernel_and_chain_agree_in_every_cell[8]",
            "test_kernel_and_chain_agree_in_every_cell[9]",
            "test_kernel_and_chain_agree_in_every_cell[10]",
            "test_kernel_and_chain_agree_in_every_cell[11]",
            "test_the_random_worlds_reach_every_stage",
        ),
        "test_decision_learned_cases.py": (
            "test_a_report_declares_no_winner_on_learned_cases",
            "test_a_study_leaves_a_record",
        ),
        "test_decision_measurement.py": ("test_known_passes_change_no_decision",),
        "test_decision_scoring.py": (
            "test_a_study",
            "test_the_command_line",
        ),
        "test_default_learner_default_updates.py": ("test_the_published_arithmetic_to_the_bit",),
        "test_displays_gallery.py": (
            "test_a_notebook_sees_figure_and_table_once",
            "test_nothing_drawn_leaves_its_figure",
        ),
        "test_displays_gates.py": ("test_small_cases_are_drawn",),
        "test_docs_pages.py": (
            "test_the_blocks_of_a_page_run[docs/start]",
            "test_the_blocks_of_a_page_run[howto/arms]",
            "test_the_blocks_of_a_page_run[howto/ask]",
            "test_the_blocks_of_a_page_run[howto/certify]",
            "test_the_blocks_of_a_page_run[howto/costs]",
            "test_the_blocks_of_a_page_run[howto/judge]",
            "test_the_blocks_of_a_page_run[howto/million_cases]",
            "test_the_blocks_of_a_page_run[howto/mlflow_optuna]",
            "test_the_blocks_of_a_page_run[howto/own_objective]",
            "test_the_blocks_of_a_page_run[howto/published_thresholds]",
            "test_the_blocks_of_a_page_run[howto/study]",
            "test_the_blocks_of_a_page_run[howto/traffic_mix]",
            "test_the_site_builds_without_a_warning",
        ),
        "test_docstrings.py": ("test_docstrings_of_public_names_list_every_parameter_once",),
        "test_experiments_holdout.py": ("test_the_selection_alone_is_that_of_tune",),
        "test_experiments_league.py": (
            "TestAnswers.test_signals_that_know_nothing",
            "TestOwnTable.test_the_blocks_of_the_page_run",
            "TestTables.test_the_program",
        ),
        "test_experiments_selection_validity.py": (
            "test_promises_hold_with_fit_and_choice_inside_each_repeat",
        ),
        "test_experiments_cascades.py": ("test_false_promises_are_few[alike]",),
        "test_extension_points.py": ("test_a_name_of_a_missing_room_says_where_it_belongs",),
        "test_first_openings.py": (
            "test_one_study_of_two_processes[sqlite-one]",
            "test_runs_of_two_notebooks_in_a_fresh_folder[one]",
        ),
        "test_gates_table.py": (
            "test_a_toy_gate_is_one_row",
            "test_a_toy_gate_of_several_measurements_is_a_row_and_a_margin_function",
        ),
        "test_gating_expected_cost_laws.py": (
            "test_engines_count_and_decide_the_same",
            "test_gates_on_answers_do_not_act_but_hygiene_does",
            "test_plain_rules_decide_alike",
            "test_sweep_steps_flips_and_explanation_agree",
        ),
        "test_gating_signal_gates.py": ("test_the_decision_follows_from_its_checks",),
        "test_input_remedies.py": ("TestScale.test_a_bound_of_another_scale_is_told",),
        "test_lab_artifact_places.py": (
            "TestRuns.test_a_database_that_is_locked",
            "TestRuns.test_a_trigger_chooses_no_place",
            "TestRuns.test_nothing_is_written_elsewhere",
        ),
        "test_lab_bandit_study.py": ("test_a_study_finds_a_misleading_margin",),
        "test_lab_candidates.py": (
            "test_a_candidate_reads_nothing_of_the_held_out_fold",
            "test_a_candidate_that_cannot_compete_is_refused",
            "test_one_cross_fit_serves_every_cost_matrix",
            "test_the_best_single_threshold_is_that_of_brute_force",
            "test_the_ratio_of_a_family_is_that_of_brute_force",
            "test_where_no_ratio_keeps_the_targets_the_nearest_competes",
        ),
        "test_conformance.py": ("test_all_shared_cases_agree[1]",),
        "test_lab_certification.py": (
            "test_a_certified_cost_holds",
            "test_certify_writes_a_policy_and_remembers",
            "test_check_retrieves_new_questions_itself",
            "test_check_speaks_in_exit_codes",
        ),
        "test_lab_certification_families.py": (
            "test_labels_of_the_certified_split_touch_no_candidate_of_an_expected_cost",
            "test_lists_of_several_models_and_none_are_cross_fitted_by_model",
        ),
        "test_lab_clarify_study.py": (
            "test_first_trial_is_the_published_learner_and_the_winner_keeps_the_limit",
            "test_seeds_draw_topics_anew_and_pair_policies",
        ),
        "test_lab_group_fitting.py": (
            "TestReplays.test_sweep_decide_and_both_engines",
            "TestStudy.test_the_decision_by_expected_cost_competes_with_groups",
        ),
        "test_lab_held_out_groups.py": ("test_quality_of_unseen_groups_is_not_flattered",),
        "test_lab_label_sampling.py": ("test_distances_are_those_of_flips",),
        "test_lab_mix.py": (
            "TestInclusion.test_a_study_of_a_drawn_sample",
            "TestStudies.test_the_model_is_corrected_and_the_fit_is_not",
            "TestStudies.test_the_sample_s_mix_is_the_default",
            "test_a_report_says_of_which_traffic_it_is",
        ),
        "test_lab_ranking.py": ("test_the_ideal_is_the_best_order_that_there_is",),
        "test_lab_rates_by_group.py": ("test_the_report_shows_groups_beside_the_certificate",),
        "test_lab_selection.py": (
            "test_a_study_by_the_chain_and_by_candidates_of_the_user",
            "test_on_noise_a_free_policy_is_kept",
            "test_the_expected_cost_decision_is_selected_where_classes_are_separable",
            "test_where_no_case_is_ambiguous_no_candidate_asks",
        ),
        "test_lab_study.py": (
            "test_a_stored_study_ends_with_the_same_result",
            "test_a_study_gives_the_same_twice",
            "test_candidates_that_keep_the_targets_are_preferred",
        ),
        "test_lab_study_journal.py": (
            "TestBeside.test_a_file_of_sqlite_that_is_locked",
            "TestServer",
        ),
        "test_lab_threshold_rescaling.py": (
            "test_false_certificates_after_an_upgrade_stay_within_delta",
            "test_refit_takes_the_cheapest_that_passes_on_tune",
        ),
        "test_lab_trace_comparison.py": (
            "test_a_trace_beside_itself_changes_nothing",
            "test_the_order_of_the_new_cases_is_of_no_account",
            "test_two_policies_on_one_trace_are_as_compared",
        ),
        "test_lab_tracked_model.py": ("test_a_model_decides_as_the_policy",),
        "test_lab_tracking.py": (
            "test_a_study_is_one_run_over_one_trace",
            "test_a_study_without_cases_to_judge_is_in_sample",
        ),
        "test_lab_traffic_review.py": (
            "test_each_step_is_replay",
            "test_shards_say_the_same",
        ),
        "test_lab_trial_search.py": (
            "test_a_search_killed_in_the_middle_goes_on_as_if_nothing_had_happened",
        ),
        "test_laws.py": (
            "test_a_policy_decides_alone_as_among_many",
            "test_tightening_never_answers_more",
        ),
        "test_live_apply.py": ("test_a_fresh_process_is_light",),
        "test_live_ask.py": (
            "TestHostile.test_a_prompt_in_a_document_changes_no_decision",
            "TestResponse.test_an_answer",
            "test_another_process_and_a_second_time_give_the_same_bytes",
            "test_every_tau_live_is_that_tau_replayed",
        ),
        "test_live_certified_retrieval.py": (
            "test_another_arm_or_retrieval_is_said",
            "test_the_certified_arm_is_served_without_a_word",
        ),
        "test_live_index_folder.py": ("TestSwap.test_a_kill_at_any_step_leaves_one_of_both",),
        "test_live_langgraph_chain.py": ("TestEquality.test_every_policy",),
        "test_live_log_outages.py": (
            "TestFile.test_a_cache_that_is_locked",
            "TestFile.test_a_lock_costs_one_short_wait",
            "TestServer.test_away_and_back",
        ),
        "test_live_measured_signals.py": ("test_killed_in_the_middle_and_started_again",),
        "test_live_online_bandit.py": (
            "TestChoice.test_no_mass_on_a_masked_arm",
            "test_killed_in_the_middle",
            "test_three_processes_at_once",
        ),
        "test_live_replay.py": (
            "test_every_question_is_decided_live_as_in_the_replay",
            "test_hygiene_refuses_no_answerable_question",
            "test_what_was_not_measured_is_named_once",
        ),
        "test_live_response.py": ("test_the_chain_says_what_the_rules_say",),
        "test_live_telemetry.py": (
            "TestNothing.test_nothing_is_imported",
            "TestNothing.test_the_same_answers",
            "TestTexts.test_asked_for",
        ),
        "test_live_trace_building.py": ("test_the_same_bytes_with_one_thread_and_with_two",),
        "test_long_texts.py": ("test_a_reader_takes_any_long_text_in_no_time",),
        "test_loops_parallel.py": ("test_a_block_of_a_killed_process_is_done_again",),
        "test_loops_parallel_blocks.py": (
            "test_a_worker_that_is_killed_in_a_simulation",
            "test_processes_play_and_resample_as_one",
            "test_threads_play_and_resample_as_one",
        ),
        "test_model_failures.py": (
            "TestAsk.test_a_failure_raises",
            "TestAsk.test_a_service_that_must_answer",
            "TestAsk.test_the_log_counts_it_apart",
            "TestConfidence.test_the_server_is_probed_once",
            "TestKilledRuns",
            "TestRecordAnswers.test_a_budget_of_seconds_ends_a_run",
            "TestRecordAnswers.test_what_failed_is_missing_and_asked_again",
        ),
        "test_model_requests.py": ("TestLocalModel.test_waiting_for_a_turn_is_no_time_of_a_call",),
        "test_models_loaders.py": ("TestCrossEncoder.test_two_logits_are_refused",),
        "test_no_pickles.py": (
            "TestSources.test_nothing_unpickles_or_evaluates",
            "test_an_index",
        ),
        "test_notebooks.py": (
            "test_a_fresh_execution[00_primitives]",
            "test_a_fresh_execution[01_quickstart]",
            "test_a_fresh_execution[02_cockpit_and_tuning]",
        ),
        "test_nothing_in_place.py": ("test_no_function_writes_into_an_argument",),
        "test_own_documents.py": ("TestStudy",),
        "test_own_hits.py": ("TestSlipsOfSources.test_what_no_policy_can_answer_right",),
        "test_own_signals.py": (
            "test_an_own_copy_of_a_built_in_signal_is_that_signal",
            "test_steps_and_flips_of_costs_over_own_signals_are_exact",
        ),
        "test_policy_parts_own_gates.py": (
            "test_a_gate_of_the_user_is_the_gate_on_the_signal_it_reads",
            "test_sweep_decides_as_decide_and_explain_do",
        ),
        "test_policy_parts_own_gates_misbehaviour.py": ("test_an_error_names_the_gate",),
        "test_primitives.py": ("test_a_route_of_the_readme_prints_its_table",),
        "test_progress.py": ("test_a_wait_is_shown_with_its_seconds",),
        "test_ranges.py": ("TestHits.test_a_frame_with_more_is_refused",),
        "test_replay.py": ("test_no_cases_make_no_decisions",),
        "test_replay_alone.py": ("test_replay_fits_certificates_and_studies",),
        "test_replay_parts.py": (
            "TestDecisions.test_columns_and_frames",
            "TestDecisions.test_one_case",
            "test_a_sweep_of_the_parts_is_that_of_the_whole",
            "test_steps_of_the_parts_are_those_of_the_whole",
        ),
        "test_replaying_breakpoints.py": (
            "test_all_steps_are_what_each_value_counts",
            "test_flips_are_where_the_steps_of_one_case_change_its_status",
            "test_steps_of_costs_are_what_each_value_counts",
            "test_steps_of_recorded_answers_are_what_each_value_counts",
        ),
        "test_report_page.py": (
            "test_a_certificate_is_shown_and_tested_again",
            "test_a_certification_of_other_cases_is_no_promise_of_the_page",
            "test_a_frozen_cockpit_stands_in_a_frame_of_its_own",
            "test_a_hostile_corpus_stays_text",
            "test_cases_of_one_label_or_without_hits_make_a_whole_page",
            "test_no_certificate_is_proposed_on_cases_that_a_policy_learned_from",
            "test_nothing_from_outside_is_markup",
            "test_nothing_is_better_on_the_cases_it_was_chosen_on",
            "test_same_input_same_bytes",
            "test_targets_are_those_that_the_user_set",
            "test_the_page_begins_with_what_was_selected",
            "test_the_page_of_a_study_shows_its_certification",
            "test_traffic_has_a_section_where_a_review_is_given",
        ),
        "test_resigned.py": (
            "test_a_trace",
            "test_latencies",
        ),
        "test_resolver_resolve.py": (
            "test_many_queries_under_many_policies_are_each_alone",
            "test_the_chain_decides_through_a_trace_as_resolve_does_alone",
        ),
        "test_retrieval_entity_names.py": ("TestMentions.test_long_lines_take_linear_time",),
        "test_server_kinds.py": (
            "test_a_kind_of_server[429 with Retry-After, then good]",
            "test_a_kind_of_server[500 always]",
            "test_a_kind_of_server[503 always]",
            "test_a_kind_of_server[503, then good]",
            "test_a_kind_of_server[a page of HTML with 502]",
            "test_a_kind_of_server[closed]",
            "test_a_kind_of_server[half a body]",
            "test_a_kind_of_server[reset behind the headers]",
        ),
        "test_service.py": (
            "TestAttacks.test_a_process_that_hangs_or_ends_is_replaced",
            "TestAttacks.test_many_at_once_are_answered_or_told_to_wait",
            "TestAttacks.test_slow_clients_are_closed",
            "TestAttacks.test_the_server_answers_while_it_decides",
            "TestEnd.test_under_load",
            "TestEnd.test_what_hangs_is_answered",
        ),
        "test_sklearn.py": ("test_scikit_learn_takes_it_for_an_estimator",),
        "test_store_chunking.py": ("test_reading_is_linear_in_the_length",),
        "test_store_database.py": (
            "TestProcesses",
            "TestServer",
        ),
        "test_store_encodings.py": ("test_what_looks_binary_is_called_so",),
        "test_store_files.py": ("test_a_full_disk_costs_the_runs_only",),
        "test_store_html.py": (
            "test_a_page_of_100000_elements_in_one_another_is_bounded",
            "test_time_and_size_are_linear_in_the_page",
        ),
        "test_store_loaders.py": ("test_scifact_has_its_published_counts",),
        "test_store_markdown.py": (
            "test_a_large_text_is_read_by_a_process_of_its_own",
            "test_marks_that_nothing_closes_cost_little",
            "test_time_is_bounded",
        ),
        "test_store_optional_documents.py": (
            "test_a_sheet_of_a_billion_cells_costs_little",
            "test_time_of_restructuredtext_is_bounded",
        ),
        "test_store_pdf.py": (
            "test_a_hostile_pdf_is_refused",
            "test_a_pdf_with_an_owners_password_opens_without_it",
            "test_a_slow_pdf_is_ended_at_its_seconds",
            "test_memory_is_bounded",
            "test_the_limits_of_a_corpus_are_those_of_its_pdfs",
        ),
        "test_store_strict_yaml.py": ("test_a_language_is_told_so_too",),
        "test_supply_chain.py": ("test_a_service_decides_in_a_bare_environment",),
        "test_words_html_display.py": (
            "test_a_study_shows_itself",
            "test_a_value_shows_itself_in_a_line_and_in_a_bounded_page",
        ),
        "test_words_languages_texts.py": ("test_a_decision_is_the_same_in_french",),
        "test_words_text.py": ("test_time_is_linear_in_the_text",),
        "test_words_tokeniser.py": ("test_sentences_of_a_long_line_take_no_longer_each",),
    },
    "weekly": {
        "extensions/clarification/test_live_clarification.py": (
            "test_a_week_is_rebuilt_from_the_log",
        ),
        "extensions/clarification/test_long_questions.py": (
            "test_a_reader_takes_any_long_text_in_no_time",
        ),
        "extensions/cockpit/test_browser.py": (
            "TestKernel.test_a_tab_opened_again_shows_the_same",
        ),
        "extensions/monitoring/test_judge_intervals.py": ("test_coverage",),
        "extensions/monitoring/test_monitoring.py": ("test_false_alarms_are_rare",),
        "test_audit_live_rates.py": ("TestStrata.test_exact_coverage",),
        "test_browser_notebooks.py": ("*",),
        "test_bundled.py": ("test_the_decision_by_cost_is_explained_on_every_case",),
        "test_datasets.py": ("test_no_two_splits_share_a_near_duplicate_by_meaning",),
        "test_displays_gates.py": ("test_the_order_of_the_cases_is_nothing",),
        "test_experiments_bench.py": ("test_a_program_gives_its_rows",),
        "test_first_openings.py": (
            "test_one_study_of_two_processes[folder-twenty]",
            "test_one_study_of_two_processes[sqlite-twenty]",
            "test_runs_of_two_notebooks_in_a_fresh_folder[twenty]",
        ),
        "test_lab_fresh_tables.py": ("test_differences_of_learners_hold",),
        "test_lab_label_sampling.py": ("test_intervals_hold_the_truth",),
        "test_lab_reward_audit.py": ("test_intervals_hold_what_they_say",),
        "test_local_llm.py": ("*",),
        "test_long_texts.py": (
            "test_no_expression_of_a_bundled_pack_takes_long",
            "test_no_expression_of_ours_takes_long",
        ),
        "test_notebooks.py": (
            "test_a_fresh_execution[03_promises]",
            "test_a_fresh_execution[04_arms_and_answers]",
            "test_a_fresh_execution[05_bandits]",
            "test_a_fresh_execution[06_clarification]",
            "test_a_fresh_execution[07_bring_your_own]",
            "test_a_fresh_execution[08_production_traces]",
        ),
        "test_off_policy_estimators.py": (
            "test_intervals_cover",
            "test_logs_of_a_learner_are_nearly_covered",
            "test_the_bound_is_kept",
            "test_the_difference_of_two_policies_is_covered",
        ),
        "test_resigned.py": ("test_a_trace_whole",),
    },
    "rooms": {
        "test_bandit_howto.py": ("*",),
        "test_displays_gallery.py": ("*",),
        "test_edited_policies.py": ("test_a_system_of_an_edited_file_promises_nothing",),
        "test_experiments_cascades.py": ("*",),
        "test_experiments_league.py": ("*",),
        "test_failed_calls.py": (
            "TestTraces.test_save_merge_and_shards",
            "test_a_judge_that_failed",
        ),
        "fuzz/test_fuzz_cli.py": ("test_the_calls_work",),
        "fuzz/test_fuzz_disk.py": ("test_a_log_that_finds_no_room",),
        "fuzz/test_fuzz_logs.py": (
            "test_a_question_over_an_altered_log",
            "test_each_door_refuses_or_does",
        ),
        "test_lab_table_study.py": (
            "TestBudget",
            "test_a_study_of_a_table_is_one_run_of_mlflow",
        ),
        "test_live_langgraph_chain.py": ("*",),
        "test_live_online_bandit.py": (
            "TestAsk.test_a_question_that_fails",
            "TestAsk.test_an_answer_from_the_cache",
            "TestAsk.test_on_the_command_line",
            "TestAsk.test_switched_off",
            "TestAsk.test_switched_on",
            "TestAsk.test_the_arm_that_offered_options_completes_the_choice",
            "TestAsk.test_thirty_questions",
            "TestAsk.test_without_a_reranker_there_is_no_reward",
        ),
        "test_live_trace_building.py": ("TestBatches.test_stopped_before_the_trace_was_written",),
        "test_primitives.py": ("test_a_route_of_the_readme_prints_its_table[Your own documents]",),
        "test_words_languages_texts.py": ("test_every_reason_has_its_words",),
    },
}


def level_of(nodeid):
    """Level of a test by its id, the latest of those that name it; "" of `make test`."""
    path, *names = nodeid.removeprefix("tests/").split("::")
    whole = ".".join(names)
    plain = re.sub(r"\[.*", "", whole)
    listed = {"*", whole, plain, plain.partition(".")[0]}
    for level in ("weekly", "full", "rooms"):
        if listed & set(LEVELS[level].get(path, ())):
            return level
    return ""
