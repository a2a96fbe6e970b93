"""Families that transformers knows and makes no language model of text of: of pictures, sound, tables or proteins, or that only read.

The worker asks transformers for AutoModelForCausalLM, which has none of these, and ends on the node. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpc_llm.errors import ModelRequestError

RELEASE = "5.24.0"
"""Of transformers, the last whose mappings were looked at. A family that came later is for the node to judge."""
_WITHOUT = frozenset(
    """
    EvollaModel aimv2 aimv2_text_model aimv2_vision_model albert align align_text_model align_vision_model altclip altclip_text_model altclip_vision_model
    apertus1p5 apertus1p5_vision_tokenizer aria audio-spectrogram-transformer audioflamingo3 audioflamingo3_encoder autoformer aya_vision bark beit bit
    blip blip-2 blip_2_qformer blip_2_vision_model blip_text_model blip_vision_model blt_global_transformer blt_local_decoder blt_local_encoder
    blt_patcher bridgetower bridgetower_text_model bridgetower_vision_model bros canary canary_decoder canine chameleon chameleon_vqgan chinese_clip
    chinese_clip_text_model chinese_clip_vision_model chmv2 clap clap_audio_model clap_text_model clip clip_text_model clip_vision_model clipseg
    clipseg_text_model clipseg_vision_model clvp clvp_decoder clvp_encoder cohere2_vision cohere_asr cohere_compass cohere_compass_vision colmodernvbert
    colpali colqwen2 conditional_detr convbert convnext convnextv2 cosmos3_edge cosmos3_edge_text cosmos3_edge_vision cosmos3_omni csm
    csm_depth_decoder_model cvt d_fine dab-detr dac data2vec-audio data2vec-vision deberta deberta-v2 decision_transformer deepseek_ocr2
    deepseek_ocr2_encoder deepseek_ocr2_sam_vision_model deepseek_ocr2_text deepseek_ocr2_vision deepseek_vl deepseek_vl_hybrid deformable_detr deimv2
    deit depth_anything depth_pro deta detr dia dia_decoder dia_encoder diffusion_gemma diffusion_gemma_text dinat dinov2 dinov2_with_registers
    dinov3_convnext dinov3_vit distilbert donut-swin dots3_note_audio_encoder dots3_note_vision_encoder dpr dpt edgetam edgetam_mask_decoder
    edgetam_prompt_encoder edgetam_video edgetam_video_mask_decoder edgetam_video_prompt_encoder edgetam_vision_model efficientformer efficientloftr
    efficientnet embedding_gemma2 embedding_gemma2_text emu3_text_model emu3_vqgan encodec encoder-decoder eomt eomt_dinov3 ernie4_5_vl_moe
    ernie4_5_vl_moe_text ernie4_5_vl_moe_vision ernie_m esm esmc esmfold2 eurobert evolla exaone4_5 exaone4_5_vision fast_vlm fastspeech2_conformer
    fastspeech2_conformer_hifigan fastspeech2_conformer_with_hifigan flaubert flava flava_image_codebook flava_image_model flava_multimodal_model
    flava_text_model florence2 florence_vision fnet focalnet fsmt fun_asr_nano fun_asr_nano_encoder funnel gemma3n_audio gemma3n_vision gemma4_audio
    gemma4_unified_audio gemma4_unified_vision gemma4_vision git_vision_model glm46v glm4v glm4v_moe glm4v_moe_text glm4v_moe_vision glm4v_text
    glm4v_vision glm5_next glm5_next_text glm5_next_vision glm_image glm_image_text glm_image_vision glm_image_vqmodel glm_ocr glm_ocr_text glm_ocr_vision
    glmasr glmasr_encoder glmga glpn got_ocr2_vision gptsan-japanese gradium_phonon_tts granite4_vision granite4_vision_text granite_docling
    granite_docling_text granite_docling_vision granite_speech granite_speech5_ctc granite_speech5_encoder granite_speech_encoder granite_speech_plus
    granite_speech_plus_encoder granitevision graphormer grounding-dino groupvit groupvit_text_model groupvit_vision_model gte hgnet_v2 hiera
    higgs_audio_v2 higgs_audio_v2_tokenizer hubert hunyuan_vl hunyuan_vl_text hunyuan_vl_vision hy_v4_vl hy_v4_vl_text hy_v4_vl_vision
    hyperclovax_vision_v2 ibert idefics idefics2 idefics2_perceiver idefics2_vision idefics3 idefics3_vision idefics_perciever idefics_vision ijepa
    imagegpt informer inkling2 inkling2_loop inkling2_vision inkling_audio inkling_mm_model inkling_vision instructblip instructblip_qformer
    instructblip_vision_model instructblipvideo instructblipvideo_qformer instructblipvideo_vision_model internvl internvl_vision janus janus_vision_model
    janus_vqgan jev jina_embeddings_v3 jukebox kimi_k25 kimi_k25_vision kosmos-2 kosmos-2.5 kosmos_2_5_text_model kosmos_2_5_vision_model
    kosmos_2_text_model kosmos_2_vision_model kyutai_speech_to_text lasr_ctc lasr_encoder layoutlm layoutlmv2 layoutlmv3 layoutxlm led levit lfm2_vl
    lfm3_vl lfm3_vl_vision lightglue lighton_ocr lilt llama4_vision_model llava llava_next llava_next_video llava_onevision longformer longt5 luke lw_detr
    lw_detr_vit lxmert m2m_100 markuplm mask2former maskformer maskformer-swin mctct metaclip_2 metaclip_2_text_model metaclip_2_vision_model mgp-str mimi
    mimi_decoder mimi_encoder minicpm_ocr minicpm_ocr_vision minicpmv4_6 minicpmv4_6_vision minicpmv4_7 minicpmv4_7_vision minimax_m3_vl
    minimax_m3_vl_vision mistral3 mistral4 mistral_large4 mistral_large4_text mlcd mlcd_vision_model mllama_text_model mllama_vision_model
    mm-grounding-dino mobilebert mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 modernbert modernvbert molmo2 molmo2_adapter molmo2_text molmo2_vision
    moonshine moonshine_streaming moonshine_streaming_encoder moshi_depth moss_transcribe_diarize_audio mpnet mra mt5 muse_glimmer muse_glimmer_assistant
    muse_glimmer_text muse_glimmer_vision muse_spark muse_spark_audio muse_spark_text muse_spark_vision musicflamingo musicgen_decoder
    musicgen_melody_decoder nat nemo_speechlm nemotron3_5_asr nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_audio
    nemotron3_5_transcribe_word_timestamp nemotron3_diarization nemotron3_diarization_audio nemotron_asr_streaming nemotron_asr_streaming_encoder
    nemotron_h_omni neomme neucodec nezha nllb-moe nomic_bert nougat nystromformer omdet-turbo omniasr omniasr_audio omniasr_ctc oneformer
    openai_privacy_filter ovis2 ovis2_vision owlv2 owlv2_text_model owlv2_vision_model owlvit owlvit_text_model owlvit_vision_model paddleocr_vl
    paddleocr_vl_text paddleocr_vl_vision paligemma parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt patchtsmixer patchtst pe_audio
    pe_audio_encoder pe_audio_video pe_audio_video_encoder pe_video pe_video_encoder pegasus_x perceiver perception_encoder perception_lm
    phi4_multimodal_audio phi4_multimodal_vision pi0 pix2struct pix2struct_text_model pix2struct_vision_model pixio pixtral pocket_tts
    pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder poolformer pop2piano pp_chart2table
    pp_chart2table_vision pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4 pp_formulanet pp_formulanet_text pp_formulanet_vision pp_lcnet pp_lcnet_v3
    pp_lcnet_v4 pp_ocrv5_mobile_det pp_ocrv5_mobile_rec pp_ocrv5_server_det pp_ocrv5_server_rec pp_ocrv6_medium_det pp_ocrv6_small_det pp_ocrv6_small_rec
    pp_ocrv6_tiny_rec prompt_depth_anything pvt pvt_v2 qianfan_ocr qianfan_ocr_vision qwen2_5_omni qwen2_5_omni_audio_encoder qwen2_5_omni_bigvgan
    qwen2_5_omni_dit qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_omni_thinker qwen2_5_omni_token2wav qwen2_5_omni_vision_encoder qwen2_5_vl
    qwen2_5_vl_text qwen2_5_vl_vision qwen2_audio qwen2_audio_encoder qwen2_vl qwen2_vl_text qwen2_vl_vision qwen3_5_moe_vision qwen3_5_vision qwen3_asr
    qwen3_asr_encoder qwen3_omni_moe qwen3_omni_moe_audio_encoder qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text qwen3_omni_moe_text
    qwen3_omni_moe_thinker qwen3_omni_moe_vision_encoder qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_moe_vision qwen3_vl_text qwen3_vl_vision
    qwen4_exp_vision radio rag realm regnet resnet retribert rf_detr rf_detr_dinov2 rt_detr rt_detr_resnet rt_detr_v2 sam sam2 sam2_hiera_det_model
    sam2_mask_decoder sam2_prompt_encoder sam2_video sam2_video_mask_decoder sam2_video_prompt_encoder sam2_vision_model sam3 sam3_detr_decoder
    sam3_detr_encoder sam3_geometry_encoder sam3_lite_text sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder sam3_lite_text_geometry_encoder
    sam3_lite_text_mask_decoder sam3_lite_text_text_model sam3_mask_decoder sam3_tracker sam3_tracker_mask_decoder sam3_tracker_prompt_encoder
    sam3_tracker_video sam3_tracker_video_mask_decoder sam3_tracker_video_prompt_encoder sam3_video sam3_vision_model sam3_vit_model sam_hq
    sam_hq_mask_decoder sam_hq_prompt_encoder sam_hq_vision_model sam_mask_decoder sam_prompt_encoder sam_vision_model sapiens2 sapiens2_head seamless_m4t
    seamless_m4t_v2 segformer seggpt sew sew-d shieldgemma2 siglip siglip2 siglip2_text_model siglip2_vision_model siglip_text_model siglip_vision_model
    slanet slanext slanext_vision smolvlm smolvlm_vision speech-encoder-decoder speech_to_text speecht5 speecht5_hifigan splinter squeezebert step3p5
    step3p5_vision step3p7 superglue superpoint swiftformer swin swin2sr swinv2 switch_transformers t5_gemma_module t5gemma t5gemma2 t5gemma2_decoder
    t5gemma2_encoder t5gemma2_text table-transformer tapas textnet time_series_transformer timesfm timesfm2_5 timesformer timm_backbone timm_wrapper
    tipsv2 tipsv2_dpt tipsv2_text_model tipsv2_vision_model trajectory_transformer tvlt tvp udop ultrabert ultravbert umt5 unispeech unispeech-sat univnet
    unlimited_ocr unlimited_ocr_sam_vision_model unlimited_ocr_text unlimited_ocr_vision unlimited_ocr_vision_encoder upernet uvdoc uvdoc_backbone van
    vibevoice vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder vibevoice_acoustic_tokenizer_encoder vibevoice_asr vibevoice_diffusion
    video_llama_3 video_llama_3_vision video_llava videomae videomt videoprism videoprism_text_model videoprism_vision_model vilt vipllava
    vision-encoder-decoder vision-text-dual-encoder visual_bert vit vit_hybrid vit_mae vit_msn vitdet vitmatte vitpose vitpose_backbone vits vivit vjepa2
    voxtral voxtral_encoder voxtral_realtime voxtral_realtime_encoder voxtral_realtime_text wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm wavtokenizer
    wavtokenizer_encoder xclip xclip_text_model xclip_vision_model xcodec xcodec2 yolos yoso zoedepth
    """.split()
)
"""Each model_type that a release from 4.50 to RELEASE knows (CONFIG_MAPPING_NAMES of models/auto) and that
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES of none of them has."""
_SENSES = {"vision_config": "pictures", "audio_config": "sound", "speech_config": "sound"}
"""Keys of config.json that say what a model takes besides text."""


def check_made_of_text(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise ModelRequestError for a model of a family of which nothing here is made that trains or answers."""
    family = config.get("model_type")
    if not isinstance(family, str) or family not in _WITHOUT:
        return
    named = config.get("architectures")
    kind = f" ({named[0][:80]})" if isinstance(named, list) and named and isinstance(named[0], str) else ""
    senses = dict.fromkeys(what for key, what in _SENSES.items() if config.get(key))
    takes = f", which takes {' and '.join(senses)}," if senses else ""
    raise ModelRequestError(
        f"the model in {folder} is of the family {family}{kind}{takes} and transformers has no causal language model of it "
        "(AutoModelForCausalLM): only such models (the families of GPT, Llama, Mistral, Qwen2 or Gemma, say) and T5 are trained "
        "here. Give the folder of one that is made for text alone."
    )
