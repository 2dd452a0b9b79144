"""Fields of a `config.json` that do not change what a model computes, by its type in transformers.

Collected from the configuration classes of transformers 4 and 5 and from published files; a field that is neither here
nor read is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_GENERATION = _names("""
    assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens diversity_penalty do_sample
    early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length max_new_tokens
    min_length min_new_tokens min_p no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule
    num_beam_groups num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty
    return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p typical_p use_cache
""")
"""Settings of sampling, which older files keep in `config.json`."""
_OF_ALL = _names("""
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash _flash_attn_2_enabled
    _name_or_path attention_dropout attn_implementation bos_token_id chunk_size_feed_forward decoder_start_token_id
    eos_token_id experts_implementation finetuning_task gradient_checkpointing id2label initializer_range is_decoder
    label2id model_type name_or_path neftune_noise_alpha num_labels output_attentions output_hidden_states output_past
    pad_token_id prefix problem_type return_dict sep_token_id task_specific_params tf_legacy_loss tie_encoder_decoder
    tie_last_hidden_states tokenizer_class torchscript transformers.js_config transformers_version unk_token_id
    unsloth_fixed unsloth_version use_bfloat16
""")
_OF_TYPE: Mapping[str, frozenset[str]] = {
    "gpt2": _names("""
        attn_pdrop embd_pdrop predict_special_tokens reorder_and_upcast_attn resid_pdrop summary_activation
        summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    """),
    "opt": _names("activation_dropout dropout init_std layerdrop"),
    "llama": _names("is_llama_config pretraining_tp"),
    "mobilellm": _names("pretraining_tp"),
    "smollm3": _names("max_window_layers pretraining_tp"),
    "gpt_neox": _names("classifier_dropout hidden_dropout"),
    "stablelm": _names("hidden_dropout"),
    "bloom": _names("""
        attention_softmax_in_fp32 bias_dropout_fusion hidden_dropout masked_softmax_fusion offset_alibi pretraining_tp
        skip_bias_add skip_bias_add_qkv slow_but_exact
    """),
    "phi": _names("embd_pdrop resid_pdrop"),
    "granite": _names("pretraining_tp"),
    "gemma3_text": _names("_sliding_window_pattern cache_implementation"),
    "lfm2": _names("block_mlp_init_scale block_out_init_scale block_use_xavier_init conv_use_xavier_init"),
}


def ignored(model_type: str) -> frozenset[str]:
    """The fields that say nothing of a model of this type."""
    return _OF_ALL | _OF_GENERATION | _OF_TYPE.get(model_type, frozenset())
