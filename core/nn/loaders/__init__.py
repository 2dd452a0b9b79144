"""Other libraries' state dicts as the weights of our architectures, one file a library's model.

Each `from_…(state, architecture)` renames what it finds; `core.nn.load.load` checks shapes and gives the result to a
model. A state dict that lacks something, or holds parameters that the architecture has no place for, is an
`InvalidInput` that names the entry.
"""

from edgefront.core.nn.loaders.bert import from_bert
from edgefront.core.nn.loaders.distilbert import from_distilbert
from edgefront.core.nn.loaders.gpt2 import from_gpt2
from edgefront.core.nn.loaders.opt import from_opt
from edgefront.core.nn.loaders.sru import from_sru, from_srupp
from edgefront.core.nn.loaders.transformer_xl import from_transformer_xl

__all__ = ["from_bert", "from_distilbert", "from_gpt2", "from_opt", "from_sru", "from_srupp", "from_transformer_xl"]
