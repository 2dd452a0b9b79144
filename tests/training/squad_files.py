"""Question files in SQuAD's form."""

from __future__ import annotations

import json
from pathlib import Path

from edgefront.core.training.finetune.tasks import Question


def squad(path: Path, questions: list[Question]) -> Path:
    paragraphs = [
        {
            "context": question.context,
            "qas": [
                {
                    "id": question.id,
                    "question": question.text,
                    "answers": [{"text": text, "answer_start": at} for text, at in question.answers],
                }
            ],
        }
        for question in questions
    ]
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path
