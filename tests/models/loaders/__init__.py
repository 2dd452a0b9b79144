"""Other libraries' state dicts as the weights of our architectures, one file a library's model.

Each `from_…(state, architecture)` renames what it finds; `core.nn.load.load` checks shapes and gives the result to a
model. A state dict that lacks something, or holds parameters that the architecture has no place for, is an
`InvalidInput` that names the entry.
"""

from loaders.bert import from_bert
from loaders.by_name import by_name
from loaders.distilbert import from_distilbert
from loaders.gpt2 import from_gpt2
from loaders.llama import from_lfm2, from_llama
from loaders.opt import from_opt
from loaders.sru import from_sru, from_srupp
from loaders.transformer_xl import from_transformer_xl

__all__ = [
    "by_name",
    "from_bert",
    "from_distilbert",
    "from_gpt2",
    "from_lfm2",
    "from_llama",
    "from_opt",
    "from_sru",
    "from_srupp",
    "from_transformer_xl",
]
