"""Small models of the layers of `regard.nn` as Hugging Face models, so that `generate` and `Trainer` work on them.

Importing this package tells the Auto classes about them.
"""
# ruff: noqa: E402  # the hint comes before what it is about

from regard.errors import require

require("transformers", extra="hf")

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ImageToTextConfig,
    RecurrentConfig,
    parameters_of,
)
from regard.models.decoder import DecoderForCausalLM
from regard.models.encoder import EncoderForMaskedLM, EncoderForQuestionAnswering, EncoderModel
from regard.models.encoder_decoder import EncoderDecoderForConditionalGeneration
from regard.models.image_to_text import ImageToTextForConditionalGeneration
from regard.models.pointing import EncoderForPointing
from regard.models.recurrent import RecurrentForConditionalGeneration

__all__ = [
    "DecoderConfig",
    "DecoderForCausalLM",
    "EncoderConfig",
    "EncoderDecoderConfig",
    "EncoderDecoderForConditionalGeneration",
    "EncoderForMaskedLM",
    "EncoderForPointing",
    "EncoderForQuestionAnswering",
    "EncoderModel",
    "ImageToTextConfig",
    "ImageToTextForConditionalGeneration",
    "RecurrentConfig",
    "RecurrentForConditionalGeneration",
    "parameters_of",
]


def _register() -> None:
    """Tell the Auto classes which model belongs to which config."""
    for auto, model in (
        (AutoModel, EncoderModel),
        (AutoModelForMaskedLM, EncoderForMaskedLM),
        (AutoModelForQuestionAnswering, EncoderForQuestionAnswering),
        (AutoModelForCausalLM, DecoderForCausalLM),
        (AutoModelForSeq2SeqLM, EncoderDecoderForConditionalGeneration),
        (AutoModelForImageTextToText, ImageToTextForConditionalGeneration),
        (AutoModelForSeq2SeqLM, RecurrentForConditionalGeneration),
    ):
        config = model.config_class
        AutoConfig.register(config.model_type, config, exist_ok=True)
        auto.register(config, model, exist_ok=True)
    # Trainer's label smoothing moves labels by one token for the models that are named here, and for no others.
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[DecoderConfig.model_type] = DecoderForCausalLM.__name__


_register()
