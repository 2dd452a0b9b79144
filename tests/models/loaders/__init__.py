"""Other libraries' state dicts as the weights of our architectures, one file a library's model.

Each `from_…(state, architecture)` renames what it finds; `core.nn.load.load` checks shapes and gives the result to a
model. A state dict that lacks something, or holds parameters that the architecture has no place for, is an
`InvalidInput` that names the entry.
"""

from loaders.bert import from_bert
from loaders.distilbert import from_distilbert
from loaders.sru import from_sru, from_srupp
from loaders.transformer_xl import from_transformer_xl

__all__ = [
    "from_bert",
    "from_distilbert",
    "from_sru",
    "from_srupp",
    "from_transformer_xl",
]
