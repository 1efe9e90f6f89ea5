"""Every attack of the list: what stands against it, the tests that try it, what is seen of it, and what remains.

``seen`` is the integrity event (or the refusal in the journal) that names the attempt, or ``silent``: the kernel
refuses it and tells nobody. ``scripts/attacks`` runs the tests and writes the table into docs/security.md.
"""

from __future__ import annotations

from dataclasses import dataclass

SILENT = "silent by nature"
WALLS = "isolation/test_walls.py::test_"
ENDS = "isolation/test_endings.py::test_"
INTAKE = "isolation/test_intake.py::test_"
DESK = "research/test_desk_attacks.py::test_"
SPACE = "research/test_workspace_attacks.py::test_"
AGENT = "research/test_agent_process.py::test_"
GATE = "grader/test_gate.py::test_"
FILES = "grader/test_gate_files.py::test_"
GATEWAY = "grader/test_gateway.py::test_"
SESSION = "grader/test_session.py::test_"
OWN = "attacks/test_agent_campaign.py::test_"
TEXTS = "attacks/test_contamination.py::test_"


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. Without ``tests`` it cannot run anywhere yet, and ``remains`` says why.

    ``real``: what its tests need that is not everywhere; they are marked so.
    """

    name: str
    defence: str
    tests: tuple[str, ...] = ()
    seen: str = SILENT
    remains: str = "none known"
    real: str = ""


REFUSED = "research/llm/test_llm_refusals.py::test_"
PASSED = "research/llm/test_llm_passing.py::test_"
RULES = "attacks/test_rules_removed.py::test_"
GATES = "attacks/test_gates_removed.py::test_"
TRUST = "attacks/test_fuzz_trust.py::test_"
DEVICE = "attacks/test_gpu_attacks.py::test_"
NOT_HERE = "no task of this version has an environment of its own"

ATTACKS: tuple[Attack, ...] = (
    Attack("read the grader through /proc", "pid namespace, fresh /proc", (WALLS + "only_its_own_processes_and_descriptors", OWN + "nothing_of_the_run_or_the_host_is_in_reach", RULES + "without_a_process_namespace_a_daemon_outlives_the_end")),
    Attack("ptrace, process_vm_readv, pidfd_getfd", "pid namespace, seccomp", (WALLS + "kernel_calls_that_cross_walls_are_refused",)),
    Attack("launcher secrets in /proc/1", "empty environment, --args from a pipe", (WALLS + "nothing_of_our_environment_or_paths_is_inside", "attacks/test_walls_removed.py::test_without_an_empty_environment_our_keys_are_inside", RULES + "without_a_pipe_for_the_options_host_paths_are_inside")),
    Attack("write /proc/sys, /dev, the root", "never uid 0, read-only root", (WALLS + "the_root_is_a_short_allow_list_and_read_only", ENDS + "root_is_refused")),
    Attack("setuid files for the host", "no new privileges, ordinary user, modes stripped", (WALLS + "setuid_files_have_no_effect_and_the_user_is_fixed", OWN + "the_host_runs_nothing_that_lies_in_a_workspace")),
    Attack("links in the workspace, swapped while it is read", "intake by dir_fd and O_NOFOLLOW in a sandbox", (INTAKE + "a_link_swapped_in_leaks_nothing_in_4000_walks", INTAKE + "a_link_swapped_in_leaks_nothing_through_the_sandbox", SPACE + "special_files_are_refused_with_one_line", RULES + "without_the_one_reader_a_link_brings_a_secret_home"), "edit_refused"),
    Attack("FIFO, socket or device in a snapshot", "only regular files, opened without blocking", (INTAKE + "whatever_is_no_plain_file_is_refused_by_name",), "edit_refused"),
    Attack("sparse files, bombs, deep trees, odd names", "caps on size, count, depth; printable names", ("attacks/test_fuzz.py::test_a_tree_is_read_as_plain_files_or_refused_whole", TEXTS + "what_cannot_be_looked_into_is_not_called_clean"), "edit_refused"),
    Attack("a file that grows while it is copied", "the size at open, the hash of what was copied", (INTAKE + "a_file_that_grows_while_it_is_copied_stays_within_its_size",), "edit_refused"),
    Attack("change a snapshot after it was taken", "content-addressed store outside every mount", (INTAKE + "a_changed_store_is_noticed", RULES + "without_ids_and_a_store_out_of_reach_a_snapshot_is_swapped",), "the run stops"),
    Attack("planted link to /oldroot (CVE-2026-87766)", "writable mounts are leaves", (WALLS + "a_link_to_oldroot_planted_in_a_writable_folder_moves_nothing", "isolation/test_builder.py::test_a_mount_below_a_writable_one_is_always_refused", "attacks/test_walls_removed.py::test_without_the_rule_of_leaves_a_planted_link_reaches_the_host"), "the plan is refused"),
    Attack("replace mount points of a task's root", "one sandbox per episode", (), remains=NOT_HERE),
    Attack("races of select, finish and validate", "one state machine, exclusive claim", (DESK + "select_finish_and_validate_at_once_leave_one_consistent_end", "grader/test_ledger.py::test_twenty_processes_race_and_one_candidate_wins", GATES + "without_the_ledger_a_second_candidate_meets_the_hidden_problems"), "refused in the answer"),
    Attack("stop the clock", "the runner's monotonic clock, kill by pid namespace", (AGENT + "an_agent_that_stops_itself_ends_on_time_with_all_its_children",), "agent_ended: deadline"),
    Attack("suspend the host", "boottime against monotonic", ("research/test_budget.py::test_a_suspend_of_the_host_is_seen_recorded_and_not_charged",), "warning with the seconds"),
    Attack("outlive the end: signals, daemons", "pid namespace, cgroup", (ENDS + "kill_leaves_no_process_not_even_a_daemon", OWN + "nothing_of_an_agent_survives_its_end", "attacks/test_starter_killed.py::test_nothing_is_left_of_a_start_whose_starter_was_killed")),
    Attack("fork bomb", "pids cgroup, RLIMIT_NPROC inside", (ENDS + "a_fork_bomb_is_bounded_and_the_starter_stays_quick", SESSION + "a_fork_bomb_hurts_itself_alone")),
    Attack("memory bomb, /dev/shm, tmpfs", "memory cgroup, sized tmpfs", (ENDS + "a_memory_bomb_ends_with_the_word_memory", ENDS + "without_cgroups_memory_is_bounded_softly", WALLS + "temporary_file_systems_are_bounded_and_fresh"), "the reason: memory", "without cgroups the bound is per process"),
    Attack("fill the disk, print without end", "watcher, file size limit, capped logs", (AGENT + "a_full_disk_ends_the_writer", SPACE + "a_trainer_that_prints_without_end_fills_nothing"), "integrity: disk filled"),
    Attack("starve the grader of CPU", "SCHED_IDLE", (WALLS + "core_dumps_are_off_and_the_command_sees_its_limits",), remains="caches and memory bandwidth are shared"),
    Attack("pickle checkpoint", "safetensors only, never torch.load", (SPACE + "a_pickle_is_refused_by_the_gate_and_noted", GATES + "without_its_rule_the_gate_lets_a_checkpoint_in", TRUST + "a_checkpoint_is_refused_or_its_tensors_tile_the_file",), "integrity: checkpoint refused"),
    Attack("auto_map, trust_remote_code, modeling .py", "configuration rebuilt from the base", (GATE + "what_is_not_the_base_trained_is_refused_in_one_line", GATE + "full_weights_come_out_complete_with_the_bases_own_configuration"), "integrity: checkpoint refused"),
    Attack("template or tokenizer that computes or hangs", "both are the base's", (GATE + "full_weights_come_out_complete_with_the_bases_own_configuration", FILES + "a_tokenizer_may_differ_in_padding_and_in_how_merges_are_written"), "integrity: checkpoint refused"),
    Attack("answers in the template", "the template is the base's", (GATE + "full_weights_come_out_complete_with_the_bases_own_configuration",)),
    Attack("poisoned compile caches", "nothing writable outlives a sandbox of engine or trainer", (WALLS + "temporary_file_systems_are_bounded_and_fresh",)),
    Attack("a server taken over by weights", "no network, no problem file, a fresh one for the test", ("grader/test_server.py::test_the_hidden_test_is_two_evaluations_and_their_difference", WALLS + "no_network_and_no_abstract_socket_of_the_host", RULES + "without_its_own_network_the_hosts_services_answer")),
    Attack("a harness reads answers or the grader", "allow-list of mounts, the prompt on stdin", (SESSION + "only_its_own_harness_socket_and_python_are_there", SESSION + "a_harness_cannot_import_the_code_that_grades_it")),
    Attack("a harness keeps something for the next problem", "a sandbox per problem, seccomp on keyrings", (SESSION + "nothing_is_left_for_the_next_problem", WALLS + "a_keyring_carries_nothing_to_the_next_sandbox", RULES + "with_a_writable_harness_a_problem_leaves_word_for_the_next", RULES + "without_the_filter_a_keyring_carries_to_the_next_sandbox")),
    Attack("covert channels between sandboxes", "research is dead at the hidden test", ("attacks/test_covert.py::test_a_lock_on_a_shared_file_is_seen_and_ends_with_its_sandbox",), remains="sandboxes alive together see each other's locks, load and free space"),
    Attack("a harness reports to the research agent", "research is dead, its socket gone, results in 0700", (OWN + "nothing_of_an_agent_survives_its_end", "attacks/test_hidden_overlap.py::test_no_word_of_a_hidden_problem_lies_outside_the_sealed_folder")),
    Attack("train on validation problems", "comparison before every training", (TEXTS + "a_training_on_validation_problems_is_refused_with_their_lines", TEXTS + "a_reply_of_the_model_is_known_again_by_a_passage_only", GATES + "without_the_comparison_weights_and_problems_are_trained_with"), "integrity: validation problems in training data"),
    Attack("the same, encoded", "texts are decoded and unpacked first", (TEXTS + "a_validation_problem_is_found_in_every_encoding", TEXTS + "strings_that_a_program_puts_together_are_read_whole", "attacks/test_fuzz.py::test_a_question_is_found_wherever_it_is_put"), "integrity: validation problems in training data", "translations, paraphrases, ciphers, encodings not on the list"),
    Attack("a harness with a table of answers", "hidden problems are others; texts compared, calls counted", (TEXTS + "a_lookup_table_in_a_harness_is_flagged_and_scored", OWN + "answers_of_a_harness_that_asked_no_model_are_flagged"), "integrity: validation problems in a harness", "it lifts its validation score; the hidden one not"),
    Attack("known hidden problems in data or harness", "comparison after the hidden test, sealed and reported", ("attacks/test_hidden_overlap.py::test_hidden_problems_in_the_lineage_are_sealed_evidence_without_their_text", "attacks/test_hidden_overlap.py::test_the_hidden_split_is_not_compared_before_the_claim", GATES + "without_the_seal_the_vault_serves_hidden_problems_at_once"), "integrity: hidden problems in the selected candidate", "what the researcher's model knows by heart and does not write down"),
    Attack("a harness asks the research model", "its socket is not there", (SESSION + "only_its_own_harness_socket_and_python_are_there",)),
    Attack("better sampling, n, more tokens", "the gateway decides and counts", (GATEWAY + "n_and_hot_sampling_are_refused_or_overwritten", GATEWAY + "decoding_is_the_tasks_and_what_was_sent_is_counted", GATES + "without_the_gateways_limit_a_harness_takes_what_it_wants"), "counted in the score file"),
    Attack("malformed and slow requests to the model", "a real parser, caps, a clock per problem", (GATEWAY + "fifty_connections_do_not_hurt", GATEWAY + "other_paths_do_not_exist_and_are_seen", "attacks/test_fuzz.py::test_a_model_request_keeps_the_tasks_decoding_or_is_refused"), "integrity with the path"),
    Attack("persuade a judge", "scorers are programs", ("grader/test_vault.py::test_many_calls_at_once_and_hostile_texts", TRUST + "an_answer_is_read_as_what_stands_in_it",)),
    Attack("tamper with tests", "pristine grading sandbox", (), remains=NOT_HERE),
    Attack("future history in a task's root", "image lint", (), remains=NOT_HERE),
    Attack("provider-side search and code", "requests are built anew from a list", (REFUSED + "what_a_body_may_not_ask", RULES + "without_the_filter_of_bodies_the_provider_searches_the_web"), "integrity: LLM request: web_search, …"),
    Attack("contents by URL", "only data: and base64", (REFUSED + "what_a_body_may_not_ask",), "integrity: LLM request: url source"),
    Attack("other endpoints and models", "exact paths, one model", (REFUSED + "what_may_not_arrive_at_all", REFUSED + "what_a_body_may_not_ask"), "integrity: LLM request: path, model"),
    Attack("request forgery through the proxy", "requests are built anew for one fixed upstream", (REFUSED + "what_may_not_arrive_at_all", PASSED + "the_key_is_put_in_here_and_nothing_of_the_clients_headers_passes"), "integrity: LLM request: malformed"),
    Attack("exfiltrate the key", "it lives in the gateway alone; no core file", (PASSED + "the_key_is_in_no_file_no_message_and_closed_to_other_processes", PASSED + "the_upstreams_own_words_reach_the_agent_without_the_key", WALLS + "core_dumps_are_off_and_the_command_sees_its_limits")),
    Attack("the research model as teacher", "allowed; every call is counted", (PASSED + "a_reply_passes_and_the_account_is_the_upstreams",), "its tokens and money in the budget", "how much of the data it wrote is not measured"),
    Attack("evade the token budget", "charged at the gateway, before and after each call", (PASSED + "a_client_that_drops_the_stream_pays_the_upstreams_figure", PASSED + "a_stream_that_the_upstream_cuts_is_charged_an_estimate", PASSED + "many_at_once_overshoot_no_more_than_one", PASSED + "a_killed_gateway_is_started_again_and_nothing_is_free_or_counted_twice"), "charged; estimates are counted apart"),
    Attack("forged events on stdout", "stdout is a claim; lines capped", (AGENT + "the_log_is_capped_and_hostile_lines_are_claims_at_most", RULES + "what_a_tool_forges_in_its_agents_name_is_a_claim",), "shown as a claim"),
    Attack("escapes and markup in what is shown", "cleaned, then escaped", ("isolation/test_clean.py::test_known_attacks", "attacks/test_fuzz.py::test_foreign_text_in_a_report_opens_no_markup", TRUST + "a_terminal_gets_text_alone", TRUST + "data_in_a_page_cannot_leave_its_element")),
    Attack("another model in place of the base", "only the base is mounted; gate; headers, size, density", ("attacks/test_foreign_weights.py::test_weights_in_data_or_trainer_are_refused_and_train_nothing", "attacks/test_foreign_weights.py::test_weights_far_from_the_base_are_flagged_and_not_judged", GATE + "what_is_not_the_base_trained_is_refused_in_one_line"), "integrity: foreign weights refused", "weights below the limits, or written as prose"),
    Attack("benchmark answers in installed packages", "a model environment of its own; doctor looks", ("attacks/test_doctor.py::test_a_small_or_full_machine_is_told",), "doctor's note", "known packages by name only"),
    Attack("a trainer reads feedback or problems", "not mounted", (SPACE + "a_trainer_sees_no_feedback_no_sockets_and_no_other_model",)),
    Attack("faked metrics, a copy sold as trained", "metrics are claims; copies are called so", (SPACE + "forged_and_broken_metrics_are_claims_of_bounded_size", GATE + "a_copy_of_a_parent_is_no_change_and_one_bit_more_is_a_change"), "warning; no_change in the record"),
    Attack("scrape GPU memory", "one holder at a time", (DEVICE + "memory_of_a_process_that_ended_holds_nothing_of_it", "research/test_lease.py::test_holders_come_in_order_and_every_change_is_journaled"), real="the first test needs a GPU"),
    Attack("MPS and IPC sockets", "not mounted", ("isolation/test_builder.py::test_the_accelerator_comes_with_sys_and_its_nodes_after_dev", DEVICE + "nothing_of_the_drivers_daemons_is_inside"), real="the second test needs a GPU"),
    Attack("driver exploits", "research and harness have no device", (DEVICE + "research_and_harness_have_no_device",), remains="faults of the driver: trainer and engine do reach it"),
    Attack("learn of hidden data by timing", "opened after the claim only", ("attacks/test_hidden_overlap.py::test_the_hidden_split_is_not_compared_before_the_claim", "attacks/test_hidden_overlap.py::test_no_word_of_a_hidden_problem_lies_outside_the_sealed_folder")),
    Attack("flood of validations", "one runs, one waits", (DESK + "a_flood_of_requests_runs_one_job_and_queues_one",), "refused in the answer"),
    Attack("abuse of the desk's socket", "bounded lines, strict JSON, ids", (DESK + "malformed_requests_are_refused_and_noted_without_flooding_the_journal", DESK + "a_flood_of_connections_is_bounded", "attacks/test_fuzz.py::test_a_line_at_the_desk_is_an_order_or_malformed"), "integrity: malformed request, connection flood"),
    Attack("git hooks, build files, start-up files", "the host runs nothing there", (OWN + "the_host_runs_nothing_that_lies_in_a_workspace",)),
    Attack("type into the operator's terminal", "no terminal, new session, seccomp", (WALLS + "terminal_injection_is_refused",)),
    Attack("VSOCK, AF_ALG, netlink, io_uring", "seccomp", (WALLS + "odd_socket_families_are_refused_also_with_high_bits", "attacks/test_walls_removed.py::test_without_the_filter_keyrings_and_odd_sockets_are_open")),
    Attack("namespaces inside", "--disable-userns and seccomp", (WALLS + "kernel_calls_that_cross_walls_are_refused", "attacks/test_walls_removed.py::test_without_either_wall_namespaces_can_be_made")),
    Attack("edit the record of a crashed run", "hash-chained journal, digest of the configuration", ("functional/test_bad_input.py::test_a_changed_journal_is_not_resumed", "functional/test_bad_input.py::test_a_changed_configuration_is_not_resumed", "grader/test_ledger.py::test_a_changed_ledger_is_refused_by_every_method", TRUST + "a_record_with_a_flipped_bit_is_noticed", TRUST + "a_ledger_with_a_flipped_bit_holds_the_claim_or_is_refused"), "the resume is refused"),
    Attack("a false `vibe` inside", "the desk's record counts", (DESK + "the_socket_is_private_and_cannot_be_replaced",), remains="the agent can only mislead itself"),
    Attack("another local user", "folders 0700, sockets 0600", (DESK + "the_socket_is_private_and_cannot_be_replaced", "grader/test_ledger.py::test_a_sealed_folder_that_is_a_link_or_open_to_others")),
)  # fmt: skip

TESTS: frozenset[str] = frozenset(test for attack in ATTACKS for test in attack.tests)
